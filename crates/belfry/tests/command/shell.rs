//! Completions, in a real bash, and manual pages.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::support::{Ended, Workspace};

/// Runs `script` in a bash that has the completions, where the command line ends with the word that is completed.
fn complete_in_bash(workspace: &Workspace, words: &[&str]) -> Vec<String> {
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source completions || exit 9; [[ $(complete -p belfry) == *' -F _belfry '* ]] || exit 8\n\
         COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
         _belfry belfry \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" ")
    );
    let mut bash = Command::new("/bin/bash");
    let bash = bash.args(["--norc", "--noprofile", "-c", &script]).env_clear();
    let output = bash.current_dir(workspace.path("")).stdin(Stdio::null()).output().unwrap();
    let ended = Ended::new(&output);
    assert_eq!((ended.code, ended.err.len()), (0, 0), "{ended:?}");
    ended.out.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let workspace = Workspace::new();
    let script = workspace.belfry(&["completions", "bash"]);
    assert_eq!(script.code, 0);
    workspace.write("completions", script.out);
    let commands = complete_in_bash(&workspace, &["belfry", "res"]);
    assert_eq!(commands, ["reschedule", "resume", "resolve"]);
    let options = complete_in_bash(&workspace, &["belfry", "send", "--to"]);
    assert_eq!(options, ["--to", "--to-file"]);
    assert_eq!(complete_in_bash(&workspace, &["belfry", "keys", "ro"]), ["rotate"]);
    let kinds = complete_in_bash(&workspace, &["belfry", "init", "--channel", "web"]);
    assert_eq!(kinds, ["webhook", "webpush"]);
}

#[test]
fn every_shell_has_its_script_and_it_is_the_same_each_time() {
    let workspace = Workspace::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = workspace.belfry(&["completions", shell]);
        assert_eq!((script.code, script.err.len()), (0, 0), "{shell}");
        assert!(script.out.contains("provider-sim"), "{shell}");
        assert_eq!(workspace.belfry(&["completions", shell]).out, script.out, "{shell}");
    }
    assert_eq!(workspace.belfry(&["completions", "tcsh"]).code, 2);
}

#[test]
fn each_command_has_a_manual_page() {
    let workspace = Workspace::new();
    for directory in ["one", "two"] {
        let ended = workspace.belfry(&["man", directory]);
        assert_eq!((ended.code, ended.out.as_str(), ended.err.len()), (0, "", 0));
    }
    let files = std::fs::read_dir(workspace.path("one")).unwrap();
    let names: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    for name in ["belfry.1", "belfry-send.1", "belfry-keys-add.1", "belfry-suppressions-lift.1"] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    assert!(!names.contains("belfry-reference.1") && !names.contains("belfry-help.1"));
    for name in &names {
        let page = workspace.read(&format!("one/{name}"));
        let title = format!(".TH {} 1 ", name.trim_end_matches(".1"));
        assert!(page.lines().any(|line| line.starts_with(&title)), "{name}: {page}");
        let headings: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        assert_eq!(headings.get(..2), Some(&["NAME", "SYNOPSIS"][..]), "{name}");
        assert_eq!(workspace.read(&format!("two/{name}")), page, "{name}");
    }
    let first = workspace.belfry(&["man"]);
    assert_eq!(first.out, workspace.read("one/belfry.1"));
    workspace.write("taken", "");
    let refused = workspace.belfry(&["man", "taken/pages"]);
    assert_eq!(refused.code, 73, "{refused:?}");
}
