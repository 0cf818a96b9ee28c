//! `belfry credential`, with the mistakes that operators make.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::{Ended, Workspace};

/// A webhook's secret.
const SECRET: &str = "whsec_YSBjYW5hcnkgZm9yIHRoZSB0ZXN0cyEh";

/// A workspace with a master key in `master.key`.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    make_key(&workspace, "master.key");
    workspace
}

fn make_key(workspace: &Workspace, name: &str) {
    assert_eq!(workspace.belfry(&["credential", "key", name]).code, 0);
}

fn seal(workspace: &Workspace, name: &str, secret: &str) -> String {
    let arguments = ["credential", "seal", name, "webhook.secrets", "--key-file", "master.key"];
    let ended = workspace.belfry_reading(&arguments, secret.into());
    assert_eq!((ended.code, ended.err), (0, vec![]));
    ended.out.trim_end().to_owned()
}

/// A configuration whose webhooks are signed with `secret`.
fn config(key_file: &str, secret: &str) -> String {
    format!(
        "[credentials]\nkey_file = \"{key_file}\"\n[credentials.hooks]\nsecrets = [\"{secret}\"]\n\
         [channels.hooks]\nkind = \"webhook\"\ncredential = \"hooks\"\n"
    )
}

fn mode(workspace: &Workspace, name: &str) -> u32 {
    fs::symlink_metadata(workspace.path(name)).unwrap().permissions().mode() & 0o777
}

fn set_mode(workspace: &Workspace, name: &str, mode: u32) {
    fs::set_permissions(workspace.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

/// It failed with `code`, and said one line that begins with `expect`.
#[track_caller]
fn refused(ended: &Ended, code: i32, expect: &str) {
    assert_eq!((ended.code, ended.out.as_str()), (code, ""), "{ended:?}");
    assert!(ended.err.len() == 1 && ended.err[0].starts_with(expect), "{:?}", ended.err);
}

#[test]
fn a_master_key_is_its_owners_and_never_overwritten() {
    let workspace = workspace();
    assert_eq!(mode(&workspace, "master.key"), 0o600);
    let key = workspace.read("master.key");
    refused(
        &workspace.belfry(&["credential", "key", "master.key"]),
        73,
        "belfry: cannot make master.key: File exists (os error 17): name another file, a master key is never",
    );
    assert_eq!(workspace.read("master.key"), key);
    refused(
        &workspace.belfry(&["credential", "key", "no/such/place"]),
        73,
        "belfry: cannot make no/such/place: No such file or directory (os error 2): make its directory",
    );
}

#[test]
fn what_cannot_be_sealed_is_told_with_what_to_do() {
    let workspace = workspace();
    let seal_with = |key: &[&str], input: &[u8]| {
        workspace.belfry_reading(
            &[&["credential", "seal", "hooks", "webhook.secrets"], key].concat(),
            input.to_vec(),
        )
    };
    let check = |key: &[&str], input: &[u8], code: i32, expect: &str| {
        refused(&seal_with(key, input), code, expect);
    };
    check(
        &[],
        b"s",
        78,
        "belfry: there is no master key: set BELFRY_MASTER_KEY in the environment, give",
    );
    let none = ["--key-file", "none"];
    check(
        &none,
        b"s",
        78,
        "belfry: none: the master key cannot be read: No such file or directory (os error 2): `belfry credential key FILE` makes one",
    );
    workspace.write("bad.key", "bfymk_short\n");
    set_mode(&workspace, "bad.key", 0o600);
    let bad = ["--key-file", "bad.key"];
    check(
        &bad,
        b"s",
        78,
        "belfry: bad.key: is not a master key, which begins with bfymk_ and has 49 characters: `belfry",
    );
    let good = ["--key-file", "master.key"];
    check(&good, b"", 65, "belfry: there is no secret on standard input");
    check(
        &good,
        &vec![b'x'; 65 * 1024],
        65,
        "belfry: the secret on standard input has more than 64 KiB",
    );
    check(
        &good,
        b"\xff",
        65,
        "belfry: the secret on standard input is no text in UTF-8: seal its base64",
    );
    let sealed = seal(&workspace, "hooks", SECRET);
    check(&good, sealed.as_bytes(), 65, "belfry: the text on standard input is sealed already");
    set_mode(&workspace, "master.key", 0o644);
    let ended = seal_with(&good, b"s");
    assert_eq!(ended.code, 0);
    let warning = "belfry: master.key: everybody on this machine can use the master key in it: chmod 600 master.key";
    assert_eq!(ended.err, [warning]);
}

#[test]
fn what_does_not_open_is_named_with_its_place_and_what_to_do() {
    let workspace = workspace();
    make_key(&workspace, "other.key");
    let sealed = seal(&workspace, "hooks", SECRET);
    let check = |config: &str, expect: &str| {
        workspace.write("belfry.toml", config);
        refused(
            &workspace.belfry(&["check-config"]),
            78,
            &format!("belfry: belfry.toml: {expect}"),
        );
    };
    workspace.write("belfry.toml", config("master.key", &sealed));
    assert_eq!(workspace.belfry(&["check-config"]).code, 0);
    check(
        &config("other.key", &sealed),
        "credentials.hooks.secrets[0]: cannot be opened with the master key in other.key: \"hooks\" was sealed with \
         another one, or the text was changed since",
    );
    check(
        &config("master.key", &sealed).replace("key_file = \"master.key\"", ""),
        "credentials.hooks.secrets[0]: is sealed, and there is no master key: set BELFRY_MASTER_KEY in the environment, \
         or key_file in [credentials]",
    );
    check(
        &config("master.key", sealed.split_at(sealed.len() - 28).0),
        "credentials.hooks.secrets[0]: cannot be opened with the master key in master.key",
    );
    check(
        &config("master.key", "sealed:v2:hooks:webhook.secrets:AAAA"),
        "credentials.hooks.secrets[0]: is cut short or changed: \"hooks\" must be sealed anew",
    );
    check(
        &config("master.key", "sealed:"),
        "credentials.hooks.secrets[0]: is not a sealed text: `belfry credential seal NAME SETTING` prints one",
    );
    check(
        &config("master.key", &seal(&workspace, "apple", SECRET)),
        "credentials.hooks.secrets[0]: was sealed as \"apple\" and stands under \"hooks\": seal it under that name",
    );
    workspace.write("ca.sealed", &sealed);
    check(
        &format!("{}ca_file = \"ca.sealed\"\n", config("master.key", &sealed)),
        "channels.hooks.ca_file: ca.sealed: is sealed, and no secret: write it in the clear",
    );
}

#[test]
fn a_rotation_changes_what_is_sealed_and_nothing_else() {
    let workspace = workspace();
    make_key(&workspace, "new.key");
    let sealed = seal(&workspace, "hooks", SECRET);
    let text = config("master.key", &sealed);
    workspace.write("real.toml", &text);
    set_mode(&workspace, "real.toml", 0o640);
    symlink("real.toml", workspace.path("belfry.toml")).unwrap();
    let rotate = |file: &str| {
        let keys = ["--key-file", "master.key", "--new-key-file", "new.key"];
        workspace.belfry(&[&["credential", "rotate", file], keys.as_slice()].concat())
    };
    workspace.write("real.toml.new", "");
    refused(
        &rotate("belfry.toml"),
        73,
        &format!(
            "belfry: cannot replace {}",
            workspace.path("real.toml").canonicalize().unwrap().display()
        ),
    );
    assert_eq!(workspace.read("real.toml"), text);
    fs::remove_file(workspace.path("real.toml.new")).unwrap();
    let ended = rotate("belfry.toml");
    let next = "once every file is: have the engine use new.key (key_file in [credentials], or BELFRY_MASTER_KEY), and \
                restart or reload it\n";
    assert_eq!(ended.out, format!("1 sealed anew in belfry.toml\n{next}"), "{ended:?}");
    let rotated = workspace.read("real.toml");
    assert_eq!((rotated.len(), rotated == text), (text.len(), false));
    assert_eq!(mode(&workspace, "real.toml"), 0o640);
    assert!(fs::symlink_metadata(workspace.path("belfry.toml")).unwrap().is_symlink());
    // Once more, after a rotation that was cut off between two files.
    let ended = rotate("belfry.toml");
    let already = "0 sealed anew in belfry.toml, 1 were sealed with the new key before\n";
    assert_eq!(ended.out, format!("{already}{next}"));
    assert_eq!(workspace.read("real.toml"), rotated);
    assert_eq!(workspace.belfry(&["check-config"]).code, 78);
    // With both keys in one file everything opens, so that files can follow one by one.
    let both = workspace.read("new.key") + &workspace.read("master.key");
    workspace.write("master.key", both);
    assert_eq!(workspace.belfry(&["check-config"]).code, 0);
    workspace.write("real.toml", text);
    assert_eq!(workspace.belfry(&["check-config"]).code, 0);
    make_key(&workspace, "third.key");
    let keys = ["--key-file", "third.key", "--new-key-file", "new.key"];
    refused(
        &workspace.belfry(&[&["credential", "rotate", "belfry.toml"], keys.as_slice()].concat()),
        78,
        "belfry: belfry.toml: line 4: cannot be opened with the master key in third.key: \"hooks\" was sealed with another",
    );
}
