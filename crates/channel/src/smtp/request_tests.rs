//! Contents of callers, as mail: read back by another library, and everything hostile refused.

use super::super::mime::{ATTACHMENT_BYTES, ATTACHMENTS};
use super::*;
use base64::prelude::BASE64_STANDARD;
use mail_parser::{MessageParser, MimeHeaders as _};
use notification::{BatchId, Bytes};
use serde_json::{Value, json};

/// A form with something bad in one of its fields.
type Write = fn(&str) -> Value;

const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);

fn composer() -> Composer {
    let from = Mailbox::parse("The News <news@example.com>").unwrap();
    Composer { from: Some(from), return_path: None, signer: None }
}

fn content(form: &Value) -> Content {
    Content { payload: Bytes::from(form.to_string()), ..Content::default() }
}

/// Composes, and sees to it that the check says the same.
fn compose(form: &Value) -> Result<Mail, Invalid> {
    let composed = composer().compose(&content(form));
    let checked = composer().check(form.to_string().as_bytes(), b"");
    assert_eq!(checked.err().as_ref(), composed.as_ref().err(), "{form}");
    composed
}

fn written(form: &Value, recipient: &str) -> Vec<u8> {
    let mail = compose(form).unwrap();
    let message = mail.message(recipient, id(3), NOW, NOW).unwrap();
    let mut bytes = Vec::new();
    message.write_plain(&mut bytes);
    assert_eq!(bytes.len(), message.len());
    bytes
}

fn id(index: u16) -> NotificationId {
    NotificationId::new(NOW, 1, BatchId(7), index)
}

#[test]
fn what_looks_like_an_encoded_word_arrives_as_it_was_written() {
    let long = format!("{} \u{fc} =?utf-8?q?fake?=", "=?".repeat(60));
    for subject in ["=?utf-8?q?fake?=", "why =?iso-8859-1?B?eA==?= not", "=?", &long] {
        let bytes = written(&json!({"subject": subject, "text": "t"}), "r@example.org");
        let mail = MessageParser::default().parse(&bytes).unwrap();
        assert_eq!(mail.subject(), Some(subject));
        let head = String::from_utf8_lossy(&bytes);
        assert!(
            head.lines().take_while(|line| !line.is_empty()).all(|line| line.len() <= 76),
            "{head}"
        );
    }
}

#[test]
fn a_header_that_others_take_apart_is_not_encoded() {
    let earlier = format!("<{}@email.amazonses.com>", "0102018f2b3c4d5e-".repeat(5));
    let form = json!({"from": "a@b.example", "subject": "s", "text": "t", "headers": {"In-Reply-To": earlier}});
    let mail = String::from_utf8(written(&form, "somebody@example.org")).unwrap();
    let unfolded = mail.replace("\r\n\t", " ").replace("\r\n ", " ").replace("  ", " ");
    assert!(unfolded.contains(&format!("In-Reply-To: {earlier}\r\n")), "{mail}");
}

#[test]
fn a_mail_reads_back_as_it_was_written() {
    let form = json!({
        "from": "B\u{fc}cher & Co. <shop@b.example>", "reply_to": "help@b.example", "subject": "Gr\u{fc}\u{df}e \u{2603}",
        "text": "Hello,\n.\n..dots\r\nfine \u{2603}", "html": "<p>Hello</p>",
        "headers": {"X-Campaign": "autumn", "Precedence": "bulk"},
        "attachments": [
            {"name": "r\u{e9}sum\u{e9}.pdf", "type": "application/pdf", "content": BASE64_STANDARD.encode([0, 255, 13, 10, 46])},
            {"name": "a.txt", "type": "text/plain", "content": BASE64_STANDARD.encode("bare\nlines\n.\n")},
        ],
        "unsubscribe": {"url": "https://b.example/u?t=1", "mailto": "u@b.example?subject=t", "one_click": true},
    });
    let bytes = written(&form, "somebody@example.org");
    let mail = MessageParser::default().parse(&bytes).unwrap();
    let from = mail.from().unwrap().first().unwrap();
    assert_eq!((from.name(), from.address()), (Some("B\u{fc}cher & Co."), Some("shop@b.example")));
    assert_eq!(mail.to().unwrap().first().unwrap().address(), Some("somebody@example.org"));
    assert_eq!(mail.reply_to().unwrap().first().unwrap().address(), Some("help@b.example"));
    assert_eq!(mail.subject(), Some("Gr\u{fc}\u{df}e \u{2603}"));
    assert_eq!(mail.message_id(), Some(format!("{}@b.example", id(3)).as_str()));
    assert_eq!(mail.date().unwrap().to_timestamp(), NOW.seconds());
    assert_eq!(mail.body_text(0).unwrap(), "Hello,\r\n.\r\n..dots\r\nfine \u{2603}");
    assert_eq!(mail.body_html(0).unwrap(), "<p>Hello</p>");
    assert_eq!(mail.header_raw("X-Campaign").unwrap().trim(), "autumn");
    let unsubscribe = mail.header_raw("List-Unsubscribe").unwrap();
    assert!(unsubscribe.contains("<https://b.example/u?t=1>"), "{unsubscribe}");
    assert!(unsubscribe.contains("<mailto:u@b.example?subject=t>"), "{unsubscribe}");
    let post = mail.header_raw("List-Unsubscribe-Post").unwrap().trim();
    assert_eq!(post, "List-Unsubscribe=One-Click");
    let attachments: Vec<_> = mail.attachments().collect();
    assert_eq!(attachments.len(), 2);
    assert_eq!(attachments[0].attachment_name(), Some("r\u{e9}sum\u{e9}.pdf"));
    assert_eq!(attachments[0].contents(), [0, 255, 13, 10, 46]);
    assert_eq!(attachments[1].contents(), b"bare\nlines\n.\n");
}

#[test]
fn each_form_of_a_body_has_the_form_of_mail_it_needs() {
    let kind = |form: &Value| {
        let bytes = written(form, "a@example.org");
        let mail = MessageParser::default().parse(&bytes).unwrap();
        let kind = mail.content_type().unwrap();
        format!("{}/{}", kind.ctype(), kind.subtype().unwrap())
    };
    assert_eq!(kind(&json!({"subject": "s", "text": "t"})), "text/plain");
    assert_eq!(kind(&json!({"subject": "s", "html": "t"})), "text/html");
    assert_eq!(kind(&json!({"subject": "s", "text": "t", "html": "t"})), "multipart/alternative");
    let attached = json!([{"name": "a", "type": "a/b", "content": ""}]);
    assert_eq!(
        kind(&json!({"subject": "s", "text": "t", "attachments": attached})),
        "multipart/mixed"
    );
}

#[test]
fn the_same_notification_is_the_same_mail_every_time_and_another_is_another() {
    let form = json!({"subject": "s", "text": "t", "html": "h"});
    assert_eq!(written(&form, "a@example.org"), written(&form, "a@example.org"));
    let mail = compose(&form).unwrap();
    let head = |index| mail.message("a@example.org", id(index), NOW, NOW).unwrap().head;
    assert_ne!(head(1), head(2));
}

#[test]
fn what_leaves_are_lines_and_a_lone_dot_is_only_the_last() {
    let hostile = [
        ".",
        "\n.\n",
        "\r\n.\r\n",
        "\r.\r",
        "\n\r\n.\r\n\nMAIL FROM:<a@b>\r\n",
        "..",
        ".\n.\n..\n",
        "\r",
        "\n",
        "",
        "\r\n",
        "a\r\n.\r\nRCPT TO:<x@y>\r\nDATA\r\n",
        "x\n.\r\ny",
        "x\r\n.\ny",
        "\u{2028}.\u{2028}",
    ];
    let long = "x".repeat(10_000);
    for text in hostile.iter().copied().chain([long.as_str()]) {
        for form in [
            json!({"subject": "s", "text": text}),
            json!({"subject": "s", "text": text, "html": text}),
        ] {
            let mail = compose(&form).unwrap();
            let message = mail.message("a@example.org", id(1), NOW, NOW).unwrap();
            let mut dotted = Vec::new();
            message.write_dotted(&mut dotted);
            check_lines(&dotted).unwrap();
            let text = String::from_utf8(dotted).unwrap();
            let lines: Vec<&str> = text.split("\r\n").collect();
            let dots: Vec<usize> = lines
                .iter()
                .enumerate()
                .filter(|(_, line)| **line == ".")
                .map(|(i, _)| i)
                .collect();
            assert_eq!(dots, [lines.len() - 2], "{text}");
            // The server takes one dot off again.
            let received: String = lines[..lines.len() - 2]
                .iter()
                .map(|line| line.strip_prefix('.').unwrap_or(line))
                .fold(String::new(), |all, line| all + line + "\r\n");
            let mut plain = Vec::new();
            message.write_plain(&mut plain);
            assert_eq!(received.as_bytes(), plain);
        }
    }
}

#[test]
fn what_passes_the_check_can_be_composed_however_long_it_is() {
    for letter in ["x", "\"", "x ", "\u{fc}", "\u{1f600}", "="] {
        for bytes in [70, 76, 255, 998, 1_000, 2_040, 4_090] {
            let long = letter.repeat(bytes / letter.len());
            let file = letter.repeat(255 / letter.len());
            let name = letter.repeat(248 / letter.len());
            for (field, value) in [
                ("subject", json!(long)),
                ("from", json!(format!("{name} <a@example.com>"))),
                ("headers", json!({"X-A": long})),
                ("text", json!(long)),
                ("unsubscribe", json!({"url": format!("https://a.example/{}", "x".repeat(bytes))})),
                (
                    "attachments",
                    json!([{"name": file, "content": "",
                    "type": format!("{}/{}", "a".repeat(127), "b".repeat(127))}]),
                ),
            ] {
                let mut form = json!({"subject": "s", "text": "t"});
                form[field] = value;
                match compose(&form) {
                    Ok(_) => {}
                    // It cannot be folded.
                    Err(invalid) => {
                        assert_eq!(invalid.pointer, "/unsubscribe/url", "{form} {invalid}");
                        assert!(bytes > 900);
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_a_caller_writes_becomes_another_header_or_command() {
    let breaks = [
        "\r\nBcc: x@evil.example",
        "\nBcc: x@evil.example",
        "\rBcc: x@evil.example",
        "\0",
        "\u{0b}",
        "\u{7f}",
        "\u{85}",
        "\r\n\r\nbody",
        "\r\n.\r\n",
    ];
    let fields: &[(&str, Write)] = &[
        (
            "/from",
            |bad| json!({"from": format!("a@example.com{bad}"), "subject": "s", "text": "t"}),
        ),
        (
            "/from",
            |bad| json!({"from": format!("A{bad} <a@example.com>"), "subject": "s", "text": "t"}),
        ),
        (
            "/reply_to",
            |bad| json!({"reply_to": format!("A{bad} <a@example.com>"), "subject": "s", "text": "t"}),
        ),
        (
            "/reply_to",
            |bad| json!({"reply_to": format!("a{bad}@example.com"), "subject": "s", "text": "t"}),
        ),
        ("/subject", |bad| json!({"subject": format!("s{bad}"), "text": "t"})),
        (
            "/headers/X-A",
            |bad| json!({"headers": {"X-A": format!("v{bad}")}, "subject": "s", "text": "t"}),
        ),
        (
            "/unsubscribe/url",
            |bad| json!({"unsubscribe": {"url": format!("https://a.example/{bad}")}, "subject": "s", "text": "t"}),
        ),
        (
            "/unsubscribe/mailto",
            |bad| json!({"unsubscribe": {"mailto": format!("u@a.example?subject={bad}")}, "subject": "s", "text": "t"}),
        ),
        (
            "/attachments/0/name",
            |bad| json!({"attachments": [{"name": format!("a{bad}"), "type": "a/b", "content": ""}], "subject": "s", "text": "t"}),
        ),
        (
            "/attachments/0/type",
            |bad| json!({"attachments": [{"name": "a", "type": format!("a/b{bad}"), "content": ""}], "subject": "s", "text": "t"}),
        ),
        (
            "/attachments/0/content",
            |bad| json!({"attachments": [{"name": "a", "type": "a/b", "content": format!("AAAA{bad}")}], "subject": "s", "text": "t"}),
        ),
    ];
    for (pointer, form) in fields {
        for bad in breaks {
            assert_eq!(compose(&form(bad)).unwrap_err().pointer, *pointer, "{bad:?}");
        }
        assert!(compose(&form("")).is_ok(), "{pointer} is fine without");
    }
    for bad in breaks {
        let form = json!({"headers": {format!("X-A{bad}"): "v"}, "subject": "s", "text": "t"});
        assert!(compose(&form).unwrap_err().pointer.starts_with("/headers/X-A"), "{bad:?}");
    }
}

/// A form is refused, at `pointer` and with words that have `message` in them.
fn refuses(form: &Value, pointer: &str, message: &str) {
    let invalid = compose(form).unwrap_err();
    assert_eq!(invalid.pointer, pointer, "{form} {invalid}");
    assert!(invalid.message.contains(message), "{invalid}");
}

#[test]
fn what_is_wrong_with_an_attachment_is_named() {
    let check = |form: Value, pointer: &str, message: &str| refuses(&form, pointer, message);
    let attach = |name: &str, kind: &str, content: &str| json!({"subject": "s", "text": "t", "attachments": [{"name": name, "type": kind, "content": content}]});
    for (name, kind, field, words) in [
        ("", "a/b", "name", "file name"),
        (&*"a".repeat(256), "a/b", "name", "1 to 255 bytes"),
        ("../a", "a/b", "name", "without folders"),
        ("a", "text", "type", "media type"),
        ("a", "text/plain; charset=utf-8", "type", "without parameters"),
        ("a", "message/rfc822", "type", "media type"),
    ] {
        check(attach(name, kind, ""), &format!("/attachments/0/{field}"), words);
    }
    check(attach("a", "a/b", "%"), "/attachments/0/content", "not base64");
    check(
        attach("a", "a/b", &BASE64_STANDARD.encode(vec![0; ATTACHMENT_BYTES + 7])),
        "/attachments",
        ": 7 too many",
    );
    let one = json!({"name": "a", "type": "a/b", "content": ""});
    check(
        json!({"subject": "s", "text": "t", "attachments": vec![one; ATTACHMENTS + 1]}),
        "/attachments",
        "at most 16, are 17",
    );
}

#[test]
fn what_is_wrong_with_a_content_is_named() {
    let check = |form: Value, pointer: &str, message: &str| refuses(&form, pointer, message);
    check(json!([]), "", "expected an object");
    check(json!(["a@b.example", null, "s", "t"]), "", "expected an object");
    check(
        json!({"subject": "s", "text": "t", "unsubscribe": ["https://a.example"]}),
        "/unsubscribe",
        "expected an object",
    );
    check(
        json!({"subject": "s", "text": "t", "attachments": [["a", "a/b", ""]]}),
        "/attachments/0",
        "expected an object",
    );
    check(json!({"text": "t"}), "", "missing field `subject`");
    check(json!({"subject": "s"}), "", "needs `text`, `html` or both");
    check(json!({"subject": "s", "text": 1}), "/text", "invalid type");
    check(json!({"subject": "s", "text": "a\u{0}b"}), "/text", "NUL");
    check(json!({"subject": "s", "text": "t", "bcc": "x"}), "/bcc", "unknown field `bcc`");
    check(json!({"subject": "s", "text": "t", "from": "x"}), "/from", "not an e-mail address");
    check(
        json!({"subject": "s", "text": "t", "headers": {"a b": "x"}}),
        "/headers/a b",
        "not a header name",
    );
    check(
        json!({"subject": "s", "text": "t", "headers": {"a/b~": "x"}}),
        "/headers/a~1b~0",
        "not a header name",
    );
    check(json!({"subject": "s", "text": "t", "unsubscribe": {}}), "/unsubscribe", "needs `url`");
    check(
        json!({"subject": "s", "text": "t", "unsubscribe": {"url": "http://a.example"}}),
        "/unsubscribe/url",
        "https://",
    );
    check(
        json!({"subject": "s", "text": "t", "unsubscribe": {"mailto": "a@b.example", "one_click": true}}),
        "/unsubscribe/one_click",
        "needs `url`",
    );
    for name in [
        "From",
        "TO",
        "bcc",
        "Content-Type",
        "ARC-Seal",
        "Resent-To",
        "DKIM-Signature",
        "List-Unsubscribe",
    ] {
        check(
            json!({"subject": "s", "text": "t", "headers": {name: "x"}}),
            &format!("/headers/{name}"),
            "is set by Belfry",
        );
    }
    let form = json!({"subject": "s", "text": "t"});
    let without = Composer { from: None, ..composer() };
    assert_eq!(without.compose(&content(&form)).unwrap_err().pointer, "/from");
    let with_options = Content { options: Bytes::from_static(b"{\"ttl\":1}"), ..content(&form) };
    assert_eq!(composer().compose(&with_options).unwrap_err().pointer, "/ttl");
    let with_options = Content { options: Bytes::from_static(b"{\"a/b~\":1}"), ..content(&form) };
    assert_eq!(composer().compose(&with_options).unwrap_err().pointer, "/a~1b~0");
}

#[test]
fn a_head_is_ascii_whatever_is_written_in_it() {
    let form = json!({
        "subject": "Gr\u{fc}\u{df}e", "text": "\u{2603}", "from": "B\u{fc}cher <a@b\u{fc}cher.example>",
        "reply_to": "\u{2603} <a@b\u{fc}cher.example>", "headers": {"X-A": "\u{2603}"},
        "attachments": [{"name": "r\u{e9}sum\u{e9}.pdf", "type": "application/pdf", "content": ""}],
    });
    let bytes = written(&form, "a@xn--bcher-kva.example");
    assert!(bytes.is_ascii(), "{}", String::from_utf8_lossy(&bytes));
    let mail = MessageParser::default().parse(&bytes).unwrap();
    let from = mail.from().unwrap().first().unwrap();
    assert_eq!(from.address(), Some("a@xn--bcher-kva.example"));
    assert_eq!(from.name(), Some("B\u{fc}cher"));
    assert!(mail.message_id().unwrap().ends_with("@xn--bcher-kva.example"));
    let local = json!({"subject": "s", "text": "t", "from": "jos\u{e9}@example.com"});
    let invalid = compose(&local).unwrap_err();
    assert_eq!(invalid.pointer, "/from");
    assert!(invalid.message.contains("SMTPUTF8"), "{invalid}");
}
