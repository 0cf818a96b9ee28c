//! The SMTP channel before judges that are not ours: Postfix takes the mail, another library reads it, another one
//! verifies its signature.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use channel::smtp::{Settings, SmtpChannel};
use channel::{Channel as _, Tools};
use flow::Clock;
use mail_parser::{Message, MessageParser, MimeHeaders as _};
use notification::Verdict;
use serde_json::{Value, json};
use testbed::mail::DOMAIN;
use testbed::{Exim, OpenSmtpd, Postfix, SmtpSink};

use crate::support::jobs::{answer, chunk, send};

/// Sends `content` to each of `recipients` over a channel with `settings`, and gives the verdicts in order.
async fn sent(settings: Value, content: &Value, recipients: &[String]) -> Vec<(Verdict, String)> {
    let settings: Settings = serde_json::from_value(settings).unwrap();
    let channel = SmtpChannel::new(&settings).unwrap();
    let content = content.to_string();
    channel.check_content(content.as_bytes(), b"").unwrap();
    // Signatures bear the time.
    let clock = Clock::system();
    let sender = channel.open(Tools::new(clock, 1)).unwrap();
    let recipients = recipients.iter().map(|to| channel.canonical(to).unwrap().into_owned());
    let chunk = chunk(clock, &content, recipients);
    let sending = async {
        let reports = send(&*sender, clock, &chunk, 4).await;
        sender.close().await;
        reports
    };
    let reports = tokio::task::LocalSet::new().run_until(sending).await;
    let said = |report| (answer(report).verdict, answer(report).detail.clone().into_owned());
    reports.iter().map(said).collect()
}

/// How long a server may deliver nothing while mails are to come: it is broken then.
const SILENCE_MAX: Duration = Duration::from_mins(2);

/// Waits until `server` has delivered `count` mails.
fn delivered(server: &impl Server, count: usize) -> Vec<Vec<u8>> {
    let clock = Clock::system();
    let (mut arrived, mut since) = (0, clock.monotonic());
    while arrived < count {
        let now = server.arrived();
        if now > arrived {
            (arrived, since) = (now, clock.monotonic());
        }
        let silence = clock.monotonic().duration_since(since);
        assert!(silence < SILENCE_MAX, "{arrived} of {count}\n{}", server.log());
        std::thread::yield_now();
    }
    server.delivered()
}

/// A server of the distribution.
trait Server {
    fn arrived(&self) -> usize;
    fn delivered(&self) -> Vec<Vec<u8>>;
    fn log(&self) -> String;
}

macro_rules! servers {
    ($($server:ty),*) => {$(
        impl Server for $server {
            fn arrived(&self) -> usize {
                self.arrived().unwrap()
            }

            fn delivered(&self) -> Vec<Vec<u8>> {
                self.delivered().unwrap()
            }

            fn log(&self) -> String {
                self.log()
            }
        }
    )*};
}

servers!(Postfix, OpenSmtpd, Exim);

/// Sends `count` mails to `server`, and checks that all are taken at the first attempt and arrive.
async fn all_arrive(server: &impl Server, port: u16, count: usize) {
    let settings = json!({
        "relay": format!("smtp://127.0.0.1:{port}"), "helo": "client.example", "from": "shop@example.com",
    });
    let recipients: Vec<String> =
        (0..count).map(|number| format!("reader{number}@{DOMAIN}")).collect();
    for recipients in recipients.chunks(1_000) {
        let verdicts =
            sent(settings.clone(), &json!({"subject": "s", "text": "t"}), recipients).await;
        let others: Vec<_> =
            verdicts.iter().filter(|(verdict, _)| *verdict != Verdict::Accepted).collect();
        assert!(others.is_empty(), "{} mails: {others:?}\n{}", others.len(), server.log());
    }
    let mut found: Vec<String> =
        delivered(server, count).iter().map(|mail| recipient(mail)).collect();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), count, "each arrived");
}

fn recipient(mail: &[u8]) -> String {
    read(mail).to().unwrap().first().unwrap().address().unwrap().to_owned()
}

/// A certificate for 127.0.0.1 with its key, in one file; it vouches for itself.
fn identity(directory: &Path) -> std::path::PathBuf {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let path = directory.join("identity.pem");
    std::fs::write(&path, made.signing_key.serialize_pem() + &made.cert.pem()).unwrap();
    path
}

fn read(mail: &[u8]) -> Message<'_> {
    MessageParser::default().parse(mail).unwrap()
}

/// Verifies the signature of `mail` with dkimpy, another implementation, which is given `record` for its DNS.
fn verify(directory: &Path, mail: &[u8], record: &str) -> bool {
    let path = directory.join("signed.eml");
    std::fs::write(&path, mail).unwrap();
    let program = "\
import sys, dkim
mail, record = open(sys.argv[1], 'rb').read(), sys.argv[2].encode()
verifier = dkim.DKIM(mail)
try:
    is_good = verifier.verify(dnsfunc=lambda name, timeout=5: record)
except dkim.ValidationError:
    sys.exit(3)
signed = [header[0].lower() for header in verifier.signed_headers]
assert {b'from', b'to', b'subject', b'list-unsubscribe', b'list-unsubscribe-post'} <= set(signed), signed
sys.exit(0 if is_good else 3)
";
    let mut command = Command::new("/usr/bin/python3");
    let output = command.args(["-c", program]).arg(&path).arg(record).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "run scripts/setup-servers.sh: {said}");
    output.status.success()
}

const DKIM_KEYS: [&str; 2] = ["ed25519", "rsa"];

/// PEM of a fresh key of `kind`.
fn dkim_key(kind: &str) -> String {
    let algorithm: &'static rcgen::SignatureAlgorithm =
        if kind == "rsa" { &rcgen::PKCS_RSA_SHA256 } else { &rcgen::PKCS_ED25519 };
    rcgen::KeyPair::generate_for(algorithm).unwrap().serialize_pem()
}

#[tokio::test]
async fn postfix_takes_the_mail_and_another_library_reads_it_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let identity = identity(directory.path());
    let postfix = Postfix::start(&identity).unwrap();
    for (number, kind) in DKIM_KEYS.into_iter().enumerate() {
        let key_file = directory.path().join(format!("{kind}.pem"));
        std::fs::write(&key_file, dkim_key(kind)).unwrap();
        let settings = json!({
            "relay": format!("smtp://127.0.0.1:{}", postfix.port()), "tls": "require", "ca_file": identity,
            "helo": "client.example", "from": "B\u{fc}cher & Co. <shop@example.com>",
            "dkim": {"domain": "example.com", "selector": "s1", "key_file": key_file},
        });
        let attachment: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        let content = json!({
            "subject": "Gr\u{fc}\u{df}e \u{2603} with a subject that is long enough to be folded into several lines",
            "text": "Hello,\r\n.\r\n.. dots\r\n\r\n trailing  \r\nand \u{2603}\r\n\r\n\r\n", "html": "<p>Hello &amp; \u{2603}</p>",
            "attachments": [{"name": "r\u{e9}sum\u{e9}.bin", "type": "application/octet-stream", "content": base64(&attachment)}],
            "headers": {"X-Campaign": "autumn"},
            "unsubscribe": {"url": "https://example.com/u?t=1", "one_click": true},
        });
        let recipients: Vec<String> =
            (0..10).map(|number| format!("reader{number}@Belfry.TEST")).collect();
        let verdicts = sent(settings.clone(), &content, &recipients).await;
        assert!(
            verdicts.iter().all(|(verdict, _)| *verdict == Verdict::Accepted),
            "{verdicts:?}\n{}",
            postfix.log()
        );
        let mails = delivered(&postfix, 10 * (number + 1));
        let settings: Settings = serde_json::from_value(settings).unwrap();
        let record = SmtpChannel::new(&settings).unwrap().dkim_record().unwrap();
        let own: Vec<_> =
            mails.iter().filter(|mail| verify(directory.path(), mail, &record)).collect();
        assert_eq!(own.len(), 10, "{kind}: each signature verifies with its own key");
        let mut recipients: Vec<String> =
            own.iter().map(|mail| check_mail(&read(mail), &attachment)).collect();
        recipients.sort();
        let expect: Vec<String> =
            (0..10).map(|number| format!("reader{number}@{DOMAIN}")).collect();
        assert_eq!(recipients, expect);
        let forged =
            String::from_utf8_lossy(own[0]).replace("autumn", "winter").replace("Hello", "Hullo");
        assert!(
            !verify(directory.path(), forged.as_bytes(), &record),
            "a changed mail does not verify"
        );
    }
    assert!(postfix.log().contains("starttls=1"), "{}", postfix.log());
    assert!(postfix.log().contains("bdat="), "CHUNKING: {}", postfix.log());
}

/// Checks everything of a delivered mail but its recipient, which is returned.
fn check_mail(mail: &Message<'_>, attachment: &[u8]) -> String {
    let from = mail.from().unwrap().first().unwrap();
    assert_eq!(
        (from.name(), from.address()),
        (Some("B\u{fc}cher & Co."), Some("shop@example.com"))
    );
    assert_eq!(mail.return_address(), Some("shop@example.com"));
    assert_eq!(
        mail.subject(),
        Some(
            "Gr\u{fc}\u{df}e \u{2603} with a subject that is long enough to be folded into several lines"
        )
    );
    let text = mail.body_text(0).unwrap().replace("\r\n", "\n");
    assert_eq!(text, "Hello,\n.\n.. dots\n\n trailing  \nand \u{2603}\n\n\n");
    assert_eq!(mail.body_html(0).unwrap(), "<p>Hello &amp; \u{2603}</p>");
    let found = mail.attachment(0).unwrap();
    assert_eq!(
        (found.attachment_name(), found.contents()),
        (Some("r\u{e9}sum\u{e9}.bin"), attachment)
    );
    assert_eq!(mail.header_raw("X-Campaign").unwrap().trim(), "autumn");
    assert!(mail.header_raw("List-Unsubscribe").unwrap().contains("<https://example.com/u?t=1>"));
    assert!(mail.message_id().unwrap().ends_with("@example.com"));
    mail.to().unwrap().first().unwrap().address().unwrap().to_owned()
}

#[tokio::test]
async fn postfix_refuses_per_recipient_and_the_rest_arrives() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let postfix = Postfix::start(&identity(directory.path())).unwrap();
    let settings = json!({
        "relay": format!("smtp://127.0.0.1:{}", postfix.port()), "helo": "client.example",
        "from": "shop@example.com", "connections_max": 1,
    });
    let content = json!({"subject": "s", "text": "t"});
    let to = |local: &str, domain: &str| format!("{local}@{domain}");
    let recipients = [
        to("one", DOMAIN),
        to("nobody", DOMAIN),
        to("jos", DOMAIN),
        to("two", "elsewhere.test"),
        to("three", DOMAIN),
    ];
    let verdicts = sent(settings, &content, &recipients).await;
    let (gone, refused) = (Verdict::Refused { gone: true }, Verdict::Refused { gone: false });
    let expect = [Verdict::Accepted, gone, Verdict::Accepted, refused, Verdict::Accepted];
    let found: Vec<Verdict> = verdicts.iter().map(|(verdict, _)| *verdict).collect();
    assert_eq!(found, expect, "{verdicts:?}\n{}", postfix.log());
    assert!(verdicts[1].1.starts_with("550 5.1.1"), "{verdicts:?}");
    assert!(verdicts[3].1.contains("5.7.1"), "{verdicts:?}");
    assert_eq!(delivered(&postfix, 3).len(), 3);
}

#[tokio::test]
async fn opensmtpd_takes_fifteen_hundred_over_sessions_that_it_bounds() {
    let server = OpenSmtpd::start().unwrap();
    all_arrive(&server, server.port(), 1_500).await;
}

#[tokio::test]
async fn exim_takes_what_it_delivers_at_once_and_what_it_queues() {
    let server = Exim::start().unwrap();
    // Ten mails of a connection are delivered at once, and four connections are in use.
    all_arrive(&server, server.port(), 200).await;
}

#[tokio::test]
async fn the_sink_of_postfix_takes_ten_thousand() {
    let sink = SmtpSink::start().unwrap();
    let settings = json!({ "relay": format!("smtp://127.0.0.1:{}", sink.port()), "helo": "client.example", "from": "a@example.com" });
    let recipients: Vec<String> =
        (0..10_000).map(|number| format!("r{number}@example.org")).collect();
    let verdicts = sent(settings, &json!({"subject": "s", "text": "t"}), &recipients).await;
    assert_eq!(
        verdicts.iter().filter(|(verdict, _)| *verdict == Verdict::Accepted).count(),
        10_000
    );
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(bytes)
}
