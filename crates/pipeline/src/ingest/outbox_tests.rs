//! The drain under paused time, against a double of the outbox.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use async_trait::async_trait;
use flow::Clock;
use notification::{Alternative, Bytes, Content, Fallback, Guarantee, Priority};
use store::{Admission, DrainedRows, Ingest as _, Memory};

use super::super::tests::{Anything, NOW};
use super::*;
use crate::Channels;
use crate::ingest::{TemplateSource, Templates};

/// An outbox in memory that takes in two rows at a time.
#[derive(Debug)]
struct Rows {
    waiting: Mutex<VecDeque<OutboxRow>>,
    /// Answered once each, before any row is looked at.
    errors: Mutex<VecDeque<StoreError>>,
    rejected: Mutex<Vec<String>>,
    changes: watch::Sender<u64>,
    store: Arc<Memory>,
}

#[async_trait]
impl Outbox for Rows {
    async fn drain(
        &self,
        screen: Arc<Validator>,
        now: Timestamp,
    ) -> Result<DrainedRows, StoreError> {
        if let Some(error) = self.errors.lock().unwrap().pop_front() {
            return Err(error);
        }
        let mut drained = DrainedRows::default();
        for _ in 0..2 {
            let Some(row) = self.waiting.lock().unwrap().pop_front() else { return Ok(drained) };
            match screen(row, now) {
                Ok(draft) => {
                    self.store.ingest(vec![draft], now).await?;
                    drained.accepted += 1;
                }
                Err(reason) => {
                    self.rejected.lock().unwrap().push(reason);
                    drained.rejected += 1;
                }
            }
        }
        Ok(DrainedRows { more: true, ..drained })
    }

    fn outbox_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl Rows {
    fn write(&self, row: OutboxRow) {
        self.waiting.lock().unwrap().push_back(row);
    }

    fn tell(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    async fn until_accepted(&self, count: u64) {
        while store::ReadStore::totals(&*self.store).await.unwrap().accepted < count {
            tokio::task::yield_now().await;
        }
    }
}

fn fixture() -> (Arc<Rows>, Arc<Intake>) {
    let store = Arc::new(Memory::new());
    let mut channels = Channels::default();
    channels.insert("a".parse().unwrap(), Arc::new(Anything));
    let welcome = Content {
        payload: Bytes::from_static(br#"{"dear": "{{ name }}"}"#),
        options: Bytes::from_static(br#"{"n": "{{ n }}"}"#),
        fallback: None,
    };
    let welcome = TemplateSource { content: welcome, ..TemplateSource::default() };
    let templates = BTreeMap::from([("welcome".parse().unwrap(), welcome)]);
    let templates = Templates::compile(&templates, &channels).unwrap();
    let clock = Clock::starting_at(NOW);
    let intake = Intake::new(Arc::clone(&store) as _, Arc::new(channels), clock);
    let intake = intake.with_templates(templates);
    let rows = Rows {
        waiting: Mutex::default(),
        errors: Mutex::default(),
        rejected: Mutex::default(),
        changes: watch::Sender::new(0),
        store,
    };
    (Arc::new(rows), Arc::new(intake))
}

fn row() -> OutboxRow {
    OutboxRow {
        tenant: "t".to_owned(),
        channel: "a".to_owned(),
        recipient: "x@h".to_owned(),
        content: Bytes::from_static(b"{}"),
        options: Bytes::new(),
        template: None,
        variables: Bytes::new(),
        fallback: Bytes::new(),
        priority: Priority::default().as_str().to_owned(),
        guarantee: Guarantee::default().as_str().to_owned(),
        send_at: None,
        expires_at: None,
        idempotency_key: None,
        external_id: None,
        tags: Bytes::new(),
        metadata: Bytes::new(),
    }
}

/// A row of the template `welcome`.
fn templated(variables: &'static str) -> OutboxRow {
    let (content, template) = (Bytes::new(), Some("welcome".to_owned()));
    OutboxRow { content, template, variables: variables.into(), ..row() }
}

/// The instant `offset` milliseconds after now; before it if negative.
fn at(offset: i64) -> Timestamp {
    let now = i64::try_from(NOW.as_millis()).unwrap();
    Timestamp::from_millis(now + offset)
}

#[tokio::test(start_paused = true)]
async fn a_row_is_refused_in_the_words_of_its_columns() {
    let (_, intake) = fixture();
    let check = |row: OutboxRow, expect: &str| {
        assert_eq!(screen(&intake, &row, intake.now()).err().unwrap_or_default(), expect);
    };
    check(row(), "");
    check(OutboxRow { options: Bytes::from_static(b" null"), ..row() }, "");
    check(OutboxRow { options: Bytes::from_static(b"{}"), ..row() }, "");
    check(
        OutboxRow { tenant: "T".to_owned(), ..row() },
        "tenant: \"T\" is not a name (1 to 64 of a-z, 0-9, - and _, starting with a letter or digit)",
    );
    check(
        OutboxRow { channel: "b".to_owned(), ..row() },
        "channel: there is no channel \"b\": the channels are `a`",
    );
    check(OutboxRow { recipient: "x".to_owned(), ..row() }, "recipient: must have an @");
    check(
        OutboxRow { content: Bytes::from_static(b"null"), ..row() },
        "content: is missing: give `content` or `template`",
    );
    check(
        OutboxRow { options: Bytes::from_static(b"[]"), ..row() },
        "options: must be a JSON object",
    );
    check(
        OutboxRow { idempotency_key: Some(String::new()), ..row() },
        "idempotency_key: must have 1 to 255 bytes, has 0",
    );
    check(
        OutboxRow { send_at: Some(at(50)), expires_at: Some(at(50)), ..row() },
        "expires_at: must be after `send_at`",
    );
    let wrong_word = |row| screen(&intake, &row, intake.now()).unwrap_err();
    assert!(
        wrong_word(OutboxRow { priority: "high".to_owned(), ..row() }).starts_with("priority: ")
    );
    assert!(wrong_word(OutboxRow { guarantee: String::new(), ..row() }).starts_with("guarantee: "));
}

#[tokio::test(start_paused = true)]
async fn a_row_is_rendered_and_has_fallbacks_as_a_request_has() {
    let (_, intake) = fixture();
    let content = |row: OutboxRow| screen(&intake, &row, intake.now()).unwrap().content;
    let rendered = |payload: &'static str, options: &'static str| Content {
        payload: payload.into(),
        options: options.into(),
        fallback: None,
    };
    assert_eq!(
        content(templated(r#" {"name": "Ann", "n": 1}"#)),
        rendered(r#"{"dear": "Ann"}"#, r#"{"n": 1}"#)
    );
    let own = OutboxRow {
        content: r#"{"a": "{{ n }} of {{ n }}"}"#.into(),
        variables: r#"{"n": 3}"#.into(),
        ..row()
    };
    assert_eq!(content(own), rendered(r#"{"a": "3 of 3"}"#, ""));
    let plain = OutboxRow { content: r#" {"a": "{{ n }}"}"#.into(), ..row() };
    assert_eq!(content(plain), rendered(r#" {"a": "{{ n }}"}"#, ""));
    let fallback = r#" [{"channel": "a", "to": "y@g", "template": "welcome"},
        {"channel": "a", "to": "z@f", "content": {"{{": "{{ n }}"}, "options": {}}]"#;
    let row = OutboxRow { fallback: fallback.into(), ..templated(r#"{"name": "Bo", "n": 2}"#) };
    let alternative = |destination: &str, recipient: &'static str, payload, options| Alternative {
        channel: "a".parse().unwrap(),
        destination: destination.into(),
        recipient: recipient.into(),
        payload: Bytes::from_static(payload),
        options: Bytes::from_static(options),
    };
    let next = vec![
        alternative("g", "y@g", br#"{"dear": "Bo"}"#, br#"{"n": 2}"#),
        alternative("f", "z@f", br#"{"{{": 2}"#, b"{}"),
    ];
    assert_eq!(content(row).fallback, Some(Arc::new(Fallback { of: None, next })));
}

#[tokio::test(start_paused = true)]
async fn a_template_or_fallback_that_cannot_be_is_told_by_its_column() {
    let (_, intake) = fixture();
    let check = |row: OutboxRow, expect: &str| {
        assert_eq!(screen(&intake, &row, intake.now()).err().unwrap_or_default(), expect);
    };
    let fallback = |json: &'static str| OutboxRow { fallback: json.into(), ..row() };
    check(fallback("null"), "");
    check(OutboxRow { variables: "null".into(), ..row() }, "");
    check(
        OutboxRow { template: Some("welcom".to_owned()), ..templated("{}") },
        "template: there is no template \"welcom\": the templates are `welcome`",
    );
    check(templated(""), "variables: `name` is missing: /content/dear needs it");
    check(templated("[]"), "variables: must be a JSON object");
    check(
        OutboxRow { content: "{}".into(), ..templated("{}") },
        "template: is a content already: give `content` or `template`",
    );
    check(
        OutboxRow { options: "{}".into(), ..templated("{}") },
        "options: are part of the template: leave them out",
    );
    check(
        OutboxRow { content: r#"{"a": "{{ x"}"#.into(), variables: "{}".into(), ..row() },
        "content/a: is no template: unexpected end of input, expected end of variable block",
    );
    check(fallback("{}"), "fallback: must be an array");
    check(fallback("[1, 2, 3, 4]"), "fallback: must have at most 3 items, has 4");
    check(
        fallback(r#"[{"channel": "b", "to": "y@g", "content": 1}]"#),
        "fallback/0/channel: there is no channel \"b\": the channels are `a`",
    );
    check(
        fallback(r#"[{"channel": "a", "to": "y", "content": 1}]"#),
        "fallback/0/to: must have an @",
    );
    check(
        fallback(r#"[{"channel": "a", "to": "y@g", "content": 1, "cc": 1}]"#),
        "fallback/0/cc: is unknown: the fields are channel, to, content, options, template",
    );
}

#[tokio::test(start_paused = true)]
async fn a_row_has_the_labels_of_its_columns_byte_for_byte() {
    let (_, intake) = fixture();
    let labels = |row: OutboxRow| screen(&intake, &row, intake.now()).unwrap().labels;
    assert!(labels(row()).is_empty());
    assert!(
        labels(OutboxRow { tags: "null".into(), metadata: " null".into(), ..row() }).is_empty()
    );
    assert!(labels(OutboxRow { tags: "[ ]".into(), ..row() }).is_empty());
    let labelled = OutboxRow {
        external_id: Some("user \u{fc} ".to_owned()),
        tags: r#" ["b", "\u0061 ", "b"] "#.into(),
        metadata: r#" {"n": 1.10, "a": "\u0062", "n": 2} "#.into(),
        ..row()
    };
    let labels = labels(labelled);
    assert_eq!(labels.external_id, "user \u{fc} ");
    assert_eq!(labels.tags(), ["b", "a "]);
    assert_eq!(labels.metadata(), br#"{"n": 1.10, "a": "\u0062", "n": 2}"#);
}

#[tokio::test(start_paused = true)]
async fn wrong_labels_are_told_by_their_column() {
    let (_, intake) = fixture();
    let check = |row: OutboxRow, expect: &str| {
        assert_eq!(screen(&intake, &row, intake.now()).err().unwrap_or_default(), expect);
    };
    let external_id = |id: &str| OutboxRow { external_id: Some(id.to_owned()), ..row() };
    check(external_id(""), "external_id: must have 1 to 255 bytes, has 0");
    check(external_id("a\u{9f}"), "external_id: must not have control characters");
    let tags = |json: &'static str| OutboxRow { tags: json.into(), ..row() };
    check(tags("{}"), "tags: must be an array of strings");
    check(tags("[1, 2, 3, 4, 5, 6, 7, 8, 9]"), "tags: must have at most 8 tags, has 9");
    check(tags(r#"["a", 1]"#), "tags/1: must be a string");
    check(tags(r#"["a", ""]"#), "tags/1: must have 1 to 64 bytes, has 0");
    check(tags(r#"["a\u0000"]"#), "tags/0: must not have control characters");
    check(tags(r#"["\ud800"]"#), "tags/0: has an escape that is no character");
    let metadata = |json: String| OutboxRow { metadata: json.into(), ..row() };
    check(metadata("[]".to_owned()), "metadata: must be a JSON object");
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(1_017));
    check(metadata(long), "metadata: must have at most 1024 bytes, has 1026");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_waited_is_not_too_late_to_be_asked_for() {
    let (_, intake) = fixture();
    let envelope = |row: OutboxRow| screen(&intake, &row, intake.now()).unwrap().envelope;
    let hour = 3_600_000;
    let late = envelope(OutboxRow { send_at: Some(at(-hour)), ..row() });
    assert_eq!(late.due_at, at(-hour));
    let over = envelope(OutboxRow { expires_at: Some(at(-hour)), ..row() });
    assert_eq!(over.expires_at, Some(at(-hour)));
    assert!(over.due_at < over.expires_at.unwrap(), "it ends as expired");
    let both = envelope(OutboxRow { send_at: Some(at(-hour)), expires_at: Some(at(-5)), ..row() });
    assert_eq!((both.due_at, both.expires_at), (at(-hour), Some(at(-5))));
}

#[tokio::test(start_paused = true)]
async fn the_same_key_and_words_through_both_ways_are_one_notification() {
    let (rows, intake) = fixture();
    let fallback = r#"[{"channel":"a","to":"y@h","template":"welcome"}]"#;
    let keyed = OutboxRow {
        idempotency_key: Some("k".to_owned()),
        send_at: Some(at(9_000)),
        fallback: fallback.into(),
        external_id: Some("user 42".to_owned()),
        tags: r#"["order", "mail"]"#.into(),
        metadata: r#"{"order": 7}"#.into(),
        ..templated(r#"{"name":"Ann","n":1}"#)
    };
    let other_tags = OutboxRow { tags: r#"["order"]"#.into(), ..keyed.clone() };
    let by_row = screen(&intake, &keyed, intake.now()).unwrap();
    let submission = Submission {
        channel: "a".into(),
        template: Some("welcome".into()),
        variables: Some(Bytes::from_static(br#"{"name":"Ann","n":1}"#)),
        fallback: parse::fallback(
            fallback,
            &ByteString::from_static(fallback),
            RecipientField::Here,
        )
        .unwrap(),
        send_at: Some(at(9_000).to_string().into()),
        idempotency_key: Some("k".into()),
        external_id: Some("user 42".into()),
        tags: ["order", "mail"].map(ByteString::from).to_vec(),
        metadata: r#"{"order": 7}"#.into(),
        ..Submission::default()
    };
    let by_call =
        intake.check(&"t".parse().unwrap(), &submission, "x@h".into(), intake.now()).unwrap();
    let admissions = rows.store.ingest(vec![by_row, by_call], intake.now()).await.unwrap();
    assert!(matches!(admissions[1], Admission::Replayed(_)), "{admissions:?}");
    let other = screen(&intake, &other_tags, intake.now()).unwrap();
    let refused = rows.store.ingest(vec![other], intake.now()).await.unwrap_err();
    assert!(matches!(refused, StoreError::KeyReused { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn rows_are_taken_in_when_told_and_a_second_later_when_not() {
    let (rows, intake) = fixture();
    for _ in 0..3 {
        rows.write(row());
    }
    let (stop, stopping) = watch::channel(false);
    let relay = OutboxRelay { outbox: Arc::clone(&rows) as _, intake: Arc::clone(&intake) };
    let test = async {
        let start = intake.now();
        rows.until_accepted(3).await;
        rows.write(row());
        rows.tell();
        rows.until_accepted(4).await;
        assert_eq!(intake.now(), start, "nobody waited for a timer");
        rows.write(OutboxRow { channel: "b".to_owned(), ..row() });
        rows.write(row());
        rows.errors.lock().unwrap().push_back(StoreError::Unavailable("away".to_owned()));
        // Timers only move when all tasks wait.
        tokio::time::sleep(2 * LOOK_AT_LEAST_EVERY).await;
        rows.until_accepted(5).await;
        assert_eq!(rows.rejected.lock().unwrap().len(), 1);
        stop.send_replace(true);
    };
    let (ended, ()) = tokio::join!(relay.run(stopping), test);
    assert_eq!(ended, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_broken_store_ends_the_drain() {
    let (rows, intake) = fixture();
    let error = StoreError::Broken("disk".to_owned());
    rows.errors.lock().unwrap().push_back(error.clone());
    let (_stop, stopping) = watch::channel(false);
    let relay = OutboxRelay { outbox: rows, intake };
    assert_eq!(relay.run(stopping).await, Err(error));
}
