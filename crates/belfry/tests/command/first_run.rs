//! `belfry init`, from outside: what it makes, and the commands that it prints, as a user types them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::served::Served;
use crate::support::{Ended, Workspace};

fn mode(workspace: &Workspace, name: &str) -> u32 {
    workspace.path(name).metadata().unwrap().permissions().mode() & 0o777
}

/// A shell that runs `line` in the workspace and finds the binary as `belfry`.
fn shell(workspace: &Workspace, line: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_belfry"));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).current_dir(workspace.path("")).env_clear();
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    command.env("PATH", path).stdin(Stdio::null());
    command
}

/// The commands that are printed at the end.
fn next_commands(report: &str) -> Vec<String> {
    let (_, next) = report.split_once("\nNext:\n").unwrap();
    next.lines().map(|line| line.trim_start().to_owned()).collect()
}

/// Runs the printed commands, and sees the first message delivered.
fn follow(workspace: &Workspace, report: &str) {
    let commands = next_commands(report);
    let [serve, test, status] = commands.as_slice() else {
        unreachable!("three commands: {commands:?}")
    };
    // Not in the background, so that the shell becomes the engine and can be ended.
    let serve = format!("exec {}", serve.strip_suffix(" &").unwrap());
    let serve = shell(workspace, &serve);
    let served = Served::start(serve);
    let type_in = |line: &str| {
        Ended::new(&shell(workspace, line).env("BELFRY_URL", &served.url).output().unwrap())
    };
    let sent = type_in(test);
    assert_eq!((sent.code, sent.err.len()), (0, 0), "{sent:?}");
    assert!(sent.out.contains(" delivered: dry-run to anyone, "), "{sent:?}");
    let seen = type_in(status);
    assert_eq!(seen.code, 0, "{seen:?}");
    assert!(
        seen.out.lines().any(|line| line.split_whitespace().eq(["delivered", "1"])),
        "{seen:?}"
    );
    let without_key = status.replace("belfry.key", "other.key");
    assert_eq!(type_in(&without_key).code, 2);
}

#[test]
fn the_first_message_is_delivered_by_the_commands_that_are_printed() {
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["init"]);
    assert_eq!((ended.code, ended.err.len()), (0, 0), "{ended:?}");
    let modes = ["belfry.toml", "belfry.key", "data"].map(|name| mode(&workspace, name));
    assert_eq!(modes, [0o644, 0o600, 0o700]);
    let key = workspace.read("belfry.key");
    assert!(!workspace.read("belfry.toml").contains(key.trim()) && key.starts_with("belfry_"));
    assert!(!ended.out.contains(key.trim()), "{ended:?}");
    follow(&workspace, &ended.out);
    let listed = workspace.belfry(&["list"]);
    assert!(listed.out.contains(" delivered: dry-run to anyone, "), "{listed:?}");
}

#[test]
fn a_setup_in_another_directory_is_used_from_here() {
    let workspace = Workspace::new();
    let ended = workspace.belfry(&["init", "the bell/tower's"]);
    assert_eq!((ended.code, ended.err.len()), (0, 0), "{ended:?}");
    follow(&workspace, &ended.out);
    assert!(workspace.path("the bell/tower's/data").join("belfry.db").exists());
    assert!(!workspace.path("data").exists());
}

#[test]
fn what_is_there_is_named_and_left_alone() {
    for name in ["belfry.toml", "belfry.key", "data"] {
        let workspace = Workspace::new();
        workspace.write(name, "mine");
        let ended = workspace.belfry(&["init"]);
        assert_eq!((ended.code, ended.err.len()), (73, 1), "{ended:?}");
        let named = format!("there already: {};", workspace.path(name).display());
        assert!(ended.err[0].contains(&named), "{ended:?}");
        assert_eq!(workspace.read(name), "mine");
        assert_eq!(std::fs::read_dir(workspace.path("")).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn a_channel_of_each_kind_is_fine_or_says_what_to_fill_in() {
    let check = |kind: &str, expect_mode: u32, fill_in: Option<&str>, complaint: Option<&str>| {
        let workspace = Workspace::new();
        let ended = workspace.belfry(&["init", "--channel", kind]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(mode(&workspace, "belfry.toml"), expect_mode, "{kind}");
        let told = ended.out.split_once(&format!("in [channels.{kind}]: "));
        let told = told.and_then(|(_, rest)| rest.split_once(". `belfry check-config`"));
        assert_eq!(told.map(|(settings, _)| settings), fill_in, "{ended:?}");
        let checked = workspace.belfry(&["check-config"]);
        let code = if complaint.is_some() { 78 } else { 0 };
        assert_eq!((checked.code, checked.err.len()), (code, ended.err.len()), "{checked:?}");
        let has = |text: &str| checked.err.iter().any(|line| line.contains(text));
        assert!(complaint.is_none_or(has), "{checked:?}");
    };
    check("dry-run", 0o644, None, None);
    check("webhook", 0o600, None, None);
    let apns = "key_file, key_id, team_id, topic";
    check("apns", 0o644, Some(apns), Some("channels.apns: AuthKey_ABCDE12345.p8: "));
    let fcm = "channels.fcm: shop-1a2b3.json: ";
    check("fcm", 0o644, Some("service_account_file"), Some(fcm));
    check("webpush", 0o600, Some("subject"), None);
    check("smtp", 0o644, Some("relay, from"), None);
    check("stream", 0o644, Some("nats.url"), None);
    let wrong = Workspace::new().belfry(&["init", "--channel", "pigeon"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.err.iter().any(|line| line.contains("dry-run, webhook, apns")), "{wrong:?}");
}

/// As the Debian package has it: a directory that hands its group on, and one of the engine's user for the store.
#[test]
fn a_store_may_lie_elsewhere_in_an_empty_directory() {
    let workspace = Workspace::new();
    for name in ["etc", "lib"] {
        std::fs::create_dir(workspace.path(name)).unwrap();
    }
    let shared = std::fs::Permissions::from_mode(0o2750);
    std::fs::set_permissions(workspace.path("etc"), shared).unwrap();
    workspace.write("lib/mine", "");
    let init = ["init", "etc", "--store", "lib", "--channel", "webhook"];
    let refused = workspace.belfry(&init);
    assert_eq!(refused.code, 73, "{refused:?}");
    assert!(!workspace.path("etc/belfry.toml").exists());
    std::fs::remove_file(workspace.path("lib/mine")).unwrap();
    let ended = workspace.belfry(&init);
    assert_eq!((ended.code, ended.err.len()), (0, 0), "{ended:?}");
    // The engine, which is of the group, reads its configuration, and not the operator's key.
    let modes = ["etc/belfry.toml", "etc/belfry.key"].map(|name| mode(&workspace, name));
    assert_eq!(modes, [0o640, 0o600]);
    let store = format!("directory = \"{}\"", workspace.path("lib").display());
    assert!(workspace.read("etc/belfry.toml").contains(&store));
}
