//! The problems found in feeds of the configuration.

use super::tests::{complaints, source};

const CHANNELS: &str = "channels.hooks = { kind = 'webhook', secrets = ['whsec_YSBjYW5hcnkgb2Ygb25lIHdlYmhvb2sh'] }\n\
     channels.try.kind = 'dry-run'\n";

#[test]
fn a_feed_is_checked_with_the_configuration() {
    let all = |feeds: &str| complaints(&source(&format!("{CHANNELS}feeds = [{feeds}]"), &[]));
    let good = "{ name = 'a', channel = 'hooks', to = 'https://example.com/', tags = ['x y'] }";
    assert_eq!(all(good), [] as [&str; 0]);
    let check = |from: &str, to: &str, expect: &str| {
        let complaints = all(&good.replace(from, to));
        assert_eq!(complaints.len(), 1, "{to}: {complaints:?}");
        assert!(complaints[0].starts_with(expect), "{to}: {complaints:?}");
    };
    check("'a'", "'suppressions'", "f.toml: feeds[0].name: \"suppressions\" is the feed of");
    check("'hooks'", "'hook'", "f.toml: feeds[0].channel: there is no channel \"hook\"");
    check("'hooks'", "'try'", "f.toml: feeds[0].channel: is of the kind `dry-run`");
    check("https:", "ftp:", "f.toml: feeds[0].to: ");
    check(
        "tags =",
        "channels = ['sms'], tags =",
        "f.toml: feeds[0].channels: there is no channel \"sms\"",
    );
    check(
        "tags =",
        "outcomes = ['pending'], tags =",
        "f.toml: feeds[0].outcomes: pending is no end of a notification",
    );
    check(
        "'x y'",
        "'ok', ''",
        "f.toml: feeds[0].tags: must have 1 to 64 bytes, has 0: no notification has the tag \"\"",
    );
    let long = format!("'{}'", "x".repeat(65));
    check("'x y'", &long, "f.toml: feeds[0].tags: must have 1 to 64 bytes, has 65");
    check(
        "'x y'",
        "\"x\\ny\"",
        "f.toml: feeds[0].tags: must not have control characters: no notification has the tag \"x\\ny\"",
    );
    let twice = format!("{good}, {good}");
    assert_eq!(all(&twice), ["f.toml: feeds[1].name: another feed is named \"a\" already"]);
}
