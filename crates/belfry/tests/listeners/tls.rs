//! TLS of the listener, by OpenSSL and by rustls.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{Authority, CHANNEL, Workspace, get};

const TLS: &str = "[server]\nlisten = \"127.0.0.1:0\"\n[server.tls]\ncertificate_file = \"certificate.pem\"\nkey_file = \"key.pem\"\n";

/// A handshake of `openssl s_client` with the server at `address`: everything that it says.
fn openssl(address: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address, "-servername", "localhost"]).args(arguments);
    let output = command.stdin(Stdio::null()).output().expect("the tests need openssl");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn tls_1_2_and_1_3_are_spoken_with_forward_secrecy_and_nothing_older() {
    let workspace = Workspace::new(&format!("{TLS}{CHANNEL}"));
    workspace.certify(&Authority::new());
    let engine = workspace.start();
    let address = engine.address("/listen");
    for (arguments, expect) in [
        (&["-tls1_3", "-alpn", "h2,http/1.1"][..], "ALPN protocol: h2"),
        (&["-tls1_3"], "New, TLSv1.3, Cipher is TLS_"),
        (&["-tls1_2", "-alpn", "http/1.1"], "ALPN protocol: http/1.1"),
        (&["-tls1_2"], "New, TLSv1.2, Cipher is ECDHE-ECDSA-"),
        (
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
            "Cipher is ECDHE-ECDSA-CHACHA20",
        ),
    ] {
        let said = openssl(&address, arguments);
        assert!(said.contains(expect), "{arguments:?}: {said}");
    }
    // OpenSSL offers each of them, and it is the server that refuses: its alert is quoted.
    for arguments in [
        &["-tls1", "-cipher", "DEFAULT@SECLEVEL=0"][..],
        &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA384@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "AES128-GCM-SHA256@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256@SECLEVEL=0"],
        &["-alpn", "spdy/3"],
    ] {
        let said = openssl(&address, arguments);
        let is_refused = said.contains("SSL alert number") || said.contains("alert no application");
        let is_answered = !said.contains("no peer certificate available");
        assert!(is_refused && !is_answered, "{arguments:?}: {said}");
    }
}

#[test]
fn a_certificate_that_is_replaced_is_used_for_new_connections_and_a_broken_one_is_not() {
    let workspace = Workspace::new(&format!("{TLS}{CHANNEL}"));
    let (first, second) = (Authority::new(), Authority::new());
    workspace.certify(&first);
    let engine = workspace.start();
    let address = engine.address("/listen");
    let mut open = first.call(&address, None).unwrap();
    get(&mut open, "/healthz", "ok\n").unwrap();
    workspace.certify(&second);
    // By itself, at the next look.
    workspace.await_log("new certificate in force");
    get(&mut second.call(&address, None).unwrap(), "/healthz", "ok\n").unwrap();
    get(&mut open, "/healthz", "ok\n").unwrap();
    let refused = first.call(&address, None).and_then(|mut new| get(&mut new, "/healthz", "ok\n"));
    assert!(refused.is_err(), "{refused:?}");
    workspace.write("key.pem", &first.sign("localhost").1);
    workspace.await_log("is not that of the first certificate");
    get(&mut second.call(&address, None).unwrap(), "/healthz", "ok\n").unwrap();
    engine.signal(Signal::HUP);
    workspace
        .await_log("not reloaded, everything stays as it was: belfry.toml: server.tls.key_file");
    workspace.certify(&first);
    engine.signal(Signal::HUP);
    workspace.await_log("reloaded: what is sent and asked from now on goes by it");
    get(&mut first.call(&address, None).unwrap(), "/healthz", "ok\n").unwrap();
}

#[test]
fn callers_have_a_certificate_of_the_authority_that_is_named_or_may_have_none() {
    let (server, clients) = (Authority::new(), Authority::new());
    let (known, unknown) = (clients.sign("caller"), Authority::new().sign("caller"));
    for (setting, without) in [("required", false), ("optional", true)] {
        let client =
            format!("client_ca_file = \"clients.pem\"\nclient_certificates = \"{setting}\"\n");
        let workspace = Workspace::new(&format!("{TLS}{client}{CHANNEL}"));
        workspace.certify(&server);
        workspace.write("clients.pem", &clients.pem());
        let engine = workspace.start();
        let address = engine.address("/listen");
        let call = |identity| {
            let called = server.call(&address, identity);
            called.and_then(|mut stream| get(&mut stream, "/healthz", "ok\n"))
        };
        let answer = call(Some(&known));
        assert!(answer.is_ok(), "{setting}: {answer:?}");
        let answer = call(Some(&unknown));
        assert!(answer.is_err(), "{setting}: {answer:?}");
        let answer = call(None);
        assert_eq!(answer.is_ok(), without, "{setting}: {answer:?}");
    }
}

#[test]
fn what_is_wrong_with_certificates_is_said_before_anything_listens() {
    let workspace = Workspace::new(&format!("{TLS}{CHANNEL}"));
    let authority = Authority::new();
    let check = |expect: &str| {
        for command in ["check-config", "serve"] {
            let output = workspace.run(&[command]);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(78), "{command}: {said}");
            assert!(said.contains(expect), "{command}: {said}");
        }
    };
    check("server.tls.certificate_file: certificate.pem: cannot be read: No such file");
    workspace.certify(&authority);
    workspace.write("key.pem", &authority.sign("localhost").1);
    check(
        "server.tls.key_file: key.pem: the key is not that of the first certificate in certificate.pem",
    );
    workspace.write("key.pem", "");
    check("server.tls.key_file: key.pem: holds no key");
    workspace.write("belfry.toml", &format!("{TLS}client_certificates = \"required\"\n{CHANNEL}"));
    workspace.certify(&authority);
    check("server.tls.client_certificates: is not used without `client_ca_file`");
    let half = "[server.tls]\ncertificate_file = \"certificate.pem\"\n";
    workspace.write("belfry.toml", &format!("{half}{CHANNEL}"));
    check("server.tls: missing field `key_file`");
    workspace.write("belfry.toml", &format!("server.listen = \"none\"\n{CHANNEL}"));
    check("server.listen: without an address there has to be a `socket`");
}

/// A warning and no more: a caller may not look at the time.
#[test]
fn a_certificate_whose_time_is_over_is_told_of() {
    let workspace = Workspace::new(&format!("{TLS}{CHANNEL}"));
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 2);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    workspace.write("certificate.pem", &params.self_signed(&key).unwrap().pem());
    workspace.write("key.pem", &key.serialize_pem());
    let output = workspace.run(&["check-config"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let expect = "server.tls.certificate_file: the certificate was good until 2020-01-02T00:00:00Z";
    assert!(said.contains(expect), "{said}");
    let engine = workspace.start();
    workspace.await_log(expect);
    drop(engine);
}
