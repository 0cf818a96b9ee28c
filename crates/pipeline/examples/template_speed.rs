//! The cost of a template per recipient: microseconds of one thread to read the variables, render, and check; and what
//! hostile ones cost at worst.
//!
//! `cargo run --release -p pipeline --example template_speed [recipients]`

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement reads the clock, prints, and fails by panicking"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use channel::dry_run::{DryRunChannel, Settings};
use flow::Clock;
use notification::{ByteString, Bytes};
use pipeline::ingest::{BroadcastOpening, BroadcastRecipient, Submission};
use pipeline::{Channels, Intake};

/// A push message with two strings, as most are.
const PUSH: &str = r#"{"aps":{"alert":{"title":"{{ shop }}","body":"Dear {{ name }}, your order {{ order }} is on its way"},"badge":"{{ count }}"}}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(300_000);
    let line = "<tr><td>{{ item.name }}</td><td>{{ item.price }}</td></tr>";
    let mail = format!(
        r#"{{"subject":"Order {{{{ order }}}}","html":"<p>Dear {{{{ name|e }}}},</p><table>{{% for item in items %}}{line}{{% endfor %}}</table>{}"}}"#,
        "<p>text that stays as it is</p>".repeat(300)
    );
    for round in 1..=3 {
        run(&format!("{round}: no template"), PUSH, false, count).await;
        run(&format!("{round}: push, 4 tags"), PUSH, true, count).await;
        run(&format!("{round}: mail of 10 kB, 10 rows"), &mail, true, count / 10).await;
        single(&format!("{round}: push by itself, compiled"), count / 10);
    }
    worst();
}

/// Templates of a caller that keeps a thread busy.
fn worst() {
    let (intake, tenant) = (intake(), "default".parse().expect("a name"));
    let numbers = (0..7_000).map(|number| (number * 7_919 % 7_000).to_string());
    let numbers = numbers.collect::<Vec<_>>().join(",");
    let ones = vec!["1"; 30_000].join(",");
    let variables =
        |xs: &str| format!(r#"{{"xs": [{xs}], "text": "{}"}}"#, "n&".repeat(1_500)).into_bytes();
    let looped =
        |inner: &str| format!("{{% for x in xs %}}{{% if {inner} %}}{{% endif %}}{{% endfor %}}");
    let doubled =
        |depth: usize| looped(&format!("{}text{}", "[".repeat(depth), "]|string".repeat(depth)));
    for (name, xs, template) in [
        ("compare lists", &ones, looped("xs == xs")),
        ("look for what is not there", &numbers, looped("-1 in xs")),
        ("look for a text among numbers", &numbers, looped(&vec!["'x' in xs"; 40].join(" or "))),
        ("compare what is short", &numbers, looped(&vec!["text < text"; 40].join(" or "))),
        ("count characters", &numbers, looped(&vec!["text|length < 0"; 40].join(" or "))),
        ("sort, sort, sort", &numbers, looped("xs|sort|sort|sort|unique|length < 0")),
        ("look for a text in a text", &numbers, looped("(text[1:]) in text")),
        ("look for a text at its end", &numbers, looped("text|reverse in text")),
        ("texts of lists of texts", &numbers, doubled(12)),
        ("escape", &numbers, looped(&format!("text{}", "|e|string".repeat(40)))),
        ("split and join", &numbers, looped("text|split('&')|join(text)")),
        ("print", &numbers, "{% for x in xs %}{{ text }}{% endfor %}".to_owned()),
    ] {
        let submission = Submission {
            channel: "dry".into(),
            content: serde_json::json!({ "a": template }).to_string().into(),
            variables: Some(variables(xs).into()),
            ..Submission::default()
        };
        let started = Instant::now();
        let said = intake.check(&tenant, &submission, "somebody".into(), intake.now());
        let millis = started.elapsed().as_secs_f64() * 1e3;
        let said = said.err().map_or_else(|| "accepted".to_owned(), |invalid| invalid.to_string());
        println!("{name:32} {millis:8.2} ms: {said}");
    }
}

/// A notification with a content of its own, which is compiled for it.
fn single(name: &str, count: usize) {
    let intake = intake();
    let tenant = "default".parse().expect("a name");
    let submission = Submission {
        channel: "dry".into(),
        content: Bytes::from_static(PUSH.as_bytes()),
        variables: Some(Bytes::from_static(
            br#"{"shop":"The shop","name":"Ann","order":1,"count":3}"#,
        )),
        ..Submission::default()
    };
    let started = Instant::now();
    for _ in 0..count {
        intake.check(&tenant, &submission, "somebody".into(), intake.now()).expect("a good one");
    }
    show(name, started, count);
}

async fn run(name: &str, content: &str, is_template: bool, count: usize) {
    let intake = Arc::new(intake());
    let items: Vec<String> =
        (0..10).map(|item| format!(r#"{{"name":"Thing {item}","price":"9.9{item}"}}"#)).collect();
    let items = items.join(",");
    let recipients: Vec<(ByteString, Option<Bytes>)> = (0..count)
        .map(|number| {
            let variables = format!(
                r#"{{"name":"Ann {number}","order":{number},"count":3,"items":[{items}]}}"#
            );
            (format!("recipient-{number:040}").into(), is_template.then(|| variables.into()))
        })
        .collect();
    let submission = Submission {
        channel: "dry".into(),
        content: Bytes::copy_from_slice(content.as_bytes()),
        variables: is_template.then(|| Bytes::from_static(br#"{"shop":"The shop"}"#)),
        ..Submission::default()
    };
    let tenant = "default".parse().expect("a name");
    let Ok(BroadcastOpening::Open(mut upload)) = intake.open_broadcast(&tenant, submission).await
    else {
        panic!("the broadcast is not open");
    };
    let started = Instant::now();
    for (to, variables) in recipients {
        let added = upload
            .add(vec![BroadcastRecipient { to, variables, ..BroadcastRecipient::default() }])
            .await;
        assert_eq!(added.expect("there is room"), [Ok(())]);
    }
    show(name, started, count);
    upload.abandon().await;
}

fn intake() -> Intake {
    let mut channels = Channels::default();
    let channel = DryRunChannel::new(Settings::default()).expect("a channel");
    channels.insert("dry".parse().expect("a name"), Arc::new(channel));
    let clock = Clock::starting_at(Duration::from_secs(1_795_249_801));
    Intake::new(Arc::new(store::Memory::new()), Arc::new(channels), clock)
}

fn show(name: &str, started: Instant, count: usize) {
    let micros = started.elapsed().as_secs_f64() * 1e6;
    #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
    let each = micros / count as f64;
    println!("{name:32} {each:8.2} us per recipient");
}
