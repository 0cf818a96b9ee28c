//! Commands against a listener that asks callers for a certificate.

use std::process::Output;

use crate::support::{Authority, CHANNEL, Workspace};

const REQUIRED: &str = "[server]\nlisten = \"127.0.0.1:0\"\n[server.tls]\ncertificate_file = \"certificate.pem\"\nkey_file = \"key.pem\"\n\
                        client_ca_file = \"clients.pem\"\nclient_certificates = \"required\"\n";

/// The exit code, and what it said.
fn told(output: &Output) -> (i32, String) {
    let said = [&output.stdout[..], &output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[test]
fn a_command_shows_its_certificate_and_says_what_is_wrong_with_one() {
    let (server, clients) = (Authority::new(), Authority::new());
    let workspace = Workspace::new(&format!("{REQUIRED}{CHANNEL}"));
    workspace.certify(&server);
    workspace.write("server-ca.pem", &server.pem());
    workspace.write("clients.pem", &clients.pem());
    let (certificate, key) = clients.sign("caller");
    workspace.write("caller.pem", &certificate);
    workspace.write("caller.key", &key);
    workspace.write("other.key", &clients.sign("caller").1);
    let (unknown, its_key) = Authority::new().sign("caller");
    workspace.write("unknown.pem", &unknown);
    workspace.write("unknown.key", &its_key);
    let engine = workspace.start();
    let address = engine.address("/listen");
    let url = format!("https://{address}");
    let call = |url: &str, more: &[&str]| {
        let arguments = [&["channels", "--url", url, "--ca-file", "server-ca.pem"], more].concat();
        told(&workspace.run(&arguments))
    };
    let pair = ["--client-cert", "caller.pem", "--client-key", "caller.key"];
    assert_eq!(call(&url, &pair), (0, "rehearsal: dry-run\n".to_owned()));
    let mut by_variables = workspace.command(&["channels", "--url", &url]);
    by_variables.env("BELFRY_CA_FILE", "server-ca.pem");
    by_variables.env("BELFRY_CLIENT_CERT", "caller.pem").env("BELFRY_CLIENT_KEY", "caller.key");
    assert_eq!(told(&by_variables.output().unwrap()).0, 0);
    let plain = format!("http://{address}");
    let socket = format!("unix:{}", workspace.path("api.sock").display());
    let wrong = |certificate, key| ["--client-cert", certificate, "--client-key", key];
    for (url, arguments, code, expect) in [
        (
            &url,
            &[][..],
            69,
            "the server demands a client certificate (alert certificate_required): name one by --client-cert",
        ),
        (&url, &pair[..2], 2, "--client-cert (BELFRY_CLIENT_CERT) is given without --client-key"),
        (&url, &pair[2..], 2, "--client-key (BELFRY_CLIENT_KEY) is given without --client-cert"),
        (
            &url,
            &wrong("none.pem", "caller.key"),
            2,
            "none.pem: cannot be read: I/O error: No such file",
        ),
        (
            &url,
            &wrong("caller.pem", "none.key"),
            2,
            "none.key: the key cannot be read: I/O error: No such file",
        ),
        (&url, &wrong("caller.key", "caller.key"), 2, "caller.key: holds no certificate"),
        (
            &url,
            &wrong("caller.pem", "other.key"),
            2,
            "caller.pem: cannot be used with its key: keys may not be consistent",
        ),
        (
            &url,
            &wrong("unknown.pem", "unknown.key"),
            69,
            "does it trust the authority of the certificate of --client-cert?",
        ),
        (&plain, &pair, 2, "a client certificate is shown by https alone"),
        (&socket, &pair, 2, "a client certificate is shown by https alone"),
    ] {
        let (ended, said) = call(url, arguments);
        assert_eq!(ended, code, "{arguments:?}: {said}");
        assert!(said.contains(expect), "{arguments:?}: {said}");
    }
}
