//! Addresses that must not be reached, those that may, and the edges between them.

use super::*;

fn is_public(address: &str) -> bool {
    Guard::new(Vec::new()).check(address.parse().unwrap()).is_ok()
}

#[test]
fn what_is_not_public_is_forbidden() {
    for address in [
        "0.0.0.0",
        "0.255.255.255",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.0.170",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::7f00:1",
        "::8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:8.8.8.8",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::8.8.8.8",
        "64:ff9b:1::10.0.0.1",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2002:808:808::1",
        "3fff::1",
        "3fff:fff:ffff::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456:789a::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "feff::1",
        "ff02::1",
        "ff0e::1",
    ] {
        assert!(!is_public(address), "{address}");
    }
}

#[test]
fn what_is_public_is_let_through_up_to_the_edges() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2003::1",
        "2606:4700:4700::1111",
        "2a00::1",
    ] {
        assert!(is_public(address), "{address}");
    }
}

#[test]
fn an_exception_covers_its_network_and_nothing_behind_it() {
    let check = |allowed: &str, address: &str, expect: bool| {
        let guard = Guard::new(vec![allowed.parse().unwrap()]);
        assert_eq!(guard.check(address.parse().unwrap()).is_ok(), expect, "{allowed} {address}");
    };
    check("10.1.0.0/16", "10.1.2.3", true);
    check("10.1.0.0/16", "10.2.0.1", false);
    check("10.1.0.0/16", "::ffff:10.1.2.3", false);
    check("::1/128", "::1", true);
    check("127.0.0.0/8", "::1", false);
    check("fd00::/8", "fd12::1", true);
    check("fe80::/10", "fe80::1", true);
    check("64:ff9b::/96", "64:ff9b::8.8.8.8", true);
    check("64:ff9b::/96", "64:ff9b::127.0.0.1", false);
    check("64:ff9b::/96", "64:ff9b::169.254.169.254", false);
    check("64:ff9b:1::/48", "64:ff9b:1::10.0.0.1", false);
    check("::ffff:0:0/96", "::ffff:8.8.8.8", true);
    check("::ffff:0:0/96", "::ffff:10.0.0.1", false);
    check("2002::/16", "2002:7f00:1::", false);
    check("2002::/16", "2002:808:808::", true);
    check("2001::/32", "2001:0:0:0:0:0:80ff:fffe", false);
    check("::/0", "::7f00:1", false);
}

#[test]
fn a_refusal_says_why_and_what_helps() {
    let error = Guard::new(Vec::new()).check("169.254.169.254".parse().unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "169.254.169.254 is not a public address (link-local); allow_networks can make an exception"
    );
}

#[test]
fn what_is_denied_is_not_reached_be_it_public_or_allowed() {
    let networks = |networks: &[&str]| networks.iter().map(|text| text.parse().unwrap()).collect();
    let guard = Guard::new(networks(&["10.0.0.0/8", "64:ff9b::/96"]));
    let guard = guard.denying(networks(&["10.1.0.0/16", "8.8.8.0/24", "2606:4700::/32"]));
    for (address, expect) in [
        ("10.0.0.1", true),
        ("10.1.0.1", false),
        ("10.2.0.1", true),
        ("8.8.8.8", false),
        ("8.8.4.4", true),
        ("2606:4700:4700::1111", false),
        ("2a00::1", true),
        ("64:ff9b::8.8.8.8", false),
        ("64:ff9b::8.8.4.4", true),
        ("192.168.0.1", false),
    ] {
        assert_eq!(guard.check(address.parse().unwrap()).is_ok(), expect, "{address}");
    }
    let error = guard.check("8.8.8.8".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "8.8.8.8 is of a network that deny_networks denies");
}

/// The log, as it was written.
#[derive(Debug, Clone, Default)]
struct LoggedText(Arc<Mutex<Vec<u8>>>);

impl io::Write for LoggedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_name_leads_to_is_told_to_the_operator_alone_once_a_minute() {
    let log = LoggedText::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    let guard = Guard::new(Vec::new()).denying(vec!["8.8.8.8/32".parse().unwrap()]);
    let refused = |address: &str| {
        guard.clone().check_resolved(address.parse().unwrap()).unwrap_err().to_string()
    };
    let said = refused("10.0.0.1");
    for other in ["169.254.169.254", "::1", "8.8.8.8"] {
        assert_eq!(refused(other), said, "the words tell nothing of the address");
    }
    let logged = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged().contains("10.0.0.1 is not a public address (private)"), "{}", logged());
    assert_eq!(logged().lines().count(), 1, "{}", logged());
    tokio::time::advance(std::time::Duration::from_mins(1)).await;
    refused("8.8.8.8");
    assert!(logged().contains("8.8.8.8 is of a network"), "{}", logged());
    assert_eq!(logged().lines().count(), 2, "{}", logged());
}
