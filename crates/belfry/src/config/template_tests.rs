//! The problems found in templates of the configuration.

use super::tests::{complaints, source};

#[test]
fn a_template_is_checked_with_the_configuration() {
    let check = |text: &str, expect: &str| {
        let complaints = complaints(&source(text, &[]));
        assert_eq!(complaints.len(), 1, "{text}: {complaints:?}");
        assert!(complaints[0].starts_with(expect), "{text}: {complaints:?}");
    };
    check("[templates.a]", "f.toml: templates.a.content: set either this or `file`");
    check("templates.a = { content = {}, file = 'x' }", "f.toml: templates.a.content: set either");
    check("templates.a.file = '/no/such'", "f.toml: templates.a.file: cannot read /no/such: ");
    check(
        "templates.a = { content = 1, fil = 'x' }",
        "f.toml: templates.a.fil: unknown key, did you mean `file`?",
    );
    check("templates.'A b'.content = 1", "f.toml: templates.A b: \"A b\" is not a name");
    check(
        "templates.a.content.aps.alert = 'x{{ 1 2 }}'",
        "f.toml: templates.a.content.aps.alert: is no template: ",
    );
    check(
        "templates.a = { content = 1, options.x = '{% set x = 1 %}' }",
        "f.toml: templates.a.options.x: ",
    );
    check(
        "templates.a = { content = 'Dear {{ name }}', sample = { nam = 'Ann' } }",
        "f.toml: templates.a.sample: `name` is missing: /content needs it",
    );
    check(
        "templates.a = { content.x = [\"{{ n }}\", \"x\\n{{ n|first }}\"], sample = { n = 1 } }",
        "f.toml: templates.a.content.x.1: cannot get first item from value (line 2)",
    );
    check(
        "templates.a = { content = 1, channel = 'sms' }\nchannels.try.kind = 'dry-run'",
        "f.toml: templates.a.channel: there is no channel `sms`: the channels are `try`",
    );
    let try_it = |template: &str| {
        let channel =
            "{ kind = 'smtp', relay = 'smtp://127.0.0.1', tls = 'off', from = 'a@example.com' }";
        format!("channels.try = {channel}\ntemplates.a = {{ channel = 'try', {template} }}")
    };
    check(&try_it("content = { subject = 'x' }"), "f.toml: templates.a.content");
    check(
        &try_it("content = { subject = '{{ n }}-', text = '-' }, sample = { n = \"a\\nb\" }"),
        "f.toml: templates.a.content.subject: with the sample, must not have control characters",
    );
    assert!(source(&try_it("content = { subject = '{{ n }}', text = '-' }"), &[]).read().is_ok());
    let good = source("templates.a.content.aps.alert = 'Dear {{ name }}'", &[]).read().unwrap();
    assert_eq!(good.template_sources().unwrap().len(), 1);
}
