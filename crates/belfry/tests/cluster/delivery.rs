//! Everything arrives, whatever lies between the one who takes it in and the one who delivers it.

use bench::WorkloadGuarantee::{AtLeastOnce, AtMostOnce};
use bench::workload::token;
use serde_json::{Value, json};

use crate::support::{Cluster, Process, checked, eventually};

/// Sends 3,000 by each guarantee, and counts.
fn check_both_guarantees(cluster: &Cluster, by: &Process) {
    cluster.broadcast(by, 0..3_000, AtLeastOnce);
    cluster.broadcast(by, 3_000..6_000, AtMostOnce);
    cluster.drained(by, 6_000);
    let (audit, tally) = (cluster.audit(by), cluster.books().tally());
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.in_doubt), (6_000, 0), "{audit:?}");
    assert_eq!((tally.accepted, tally.duplicates, tally.missing), (6_000, 0, 0));
}

#[test]
fn whole_engines_share_a_database() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), 6_000, &[]);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    check_both_guarantees(&cluster, &one);
    let log = checked(&cluster.command(&two, "log").arg("--json").output().unwrap());
    assert_eq!(log.lines().filter(|line| line.contains(r#""state":"delivered""#)).count(), 6_000);
    one.stop();
    two.stop();
}

#[test]
fn producers_reach_consumers_through_a_broker() {
    let endpoint = testbed::aws::shared_sqs_url().unwrap();
    let brokers = [
        testbed::rabbitmq::shared_url().unwrap(),
        testbed::nats::shared_url().unwrap(),
        testbed::kafka::shared_url().unwrap(),
        format!("sqs://key:secret@eu-central-1?endpoint={endpoint}"),
    ];
    for queue in brokers {
        let database = testbed::postgres::shared().unwrap().create().unwrap();
        let cluster = Cluster::new(database.url(), 6_000, &[]).with_queue(&queue);
        let producer = cluster.start("produce", "producer");
        let consumers = [cluster.start("consume", "first"), cluster.start("consume", "second")];
        check_both_guarantees(&cluster, &producer);
        assert_eq!(consumers[0].get("/v1/notifications"), Some(404), "it only delivers");
        assert_eq!(consumers[0].get("/v1/status"), Some(200));
        assert_eq!(consumers[1].get("/metrics"), Some(200));
        for process in consumers.into_iter().chain([producer]) {
            process.stop();
        }
    }
}

#[test]
fn a_whole_engine_with_a_broker_delivers_what_a_producer_took_in() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let queue = testbed::nats::shared_url().unwrap();
    let cluster = Cluster::new(database.url(), 6_000, &[]).with_queue(&queue);
    let (producer, engine) =
        (cluster.start("produce", "producer"), cluster.start("serve", "engine"));
    check_both_guarantees(&cluster, &producer);
    producer.stop();
    engine.stop();
}

#[test]
fn a_broker_is_trusted_by_the_authority_that_the_configuration_names() {
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(authority, key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let server = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let server = server.signed_by(&key, &authority).unwrap();
    std::fs::write(path("ca.pem"), authority.pem()).unwrap();
    std::fs::write(path("server.pem"), server.pem()).unwrap();
    std::fs::write(path("server.key"), key.serialize_pem()).unwrap();

    let (certificate, key) = (path("server.pem"), path("server.key"));
    let nats = testbed::Nats::start_with(&format!(
        "tls {{ cert_file: {certificate:?}, key_file: {key:?} }}"
    ));
    let port = testbed::free_port().unwrap();
    let rabbitmq = testbed::RabbitMq::start_with(&format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.certfile = {}\nssl_options.keyfile = {}\n",
        certificate.display(),
        key.display()
    ));
    let (nats, rabbitmq) = (nats.unwrap(), rabbitmq.unwrap());
    let plain = rabbitmq.url();
    let (login, _) = plain.strip_prefix("amqp://").unwrap().rsplit_once(':').unwrap();
    for queue in [nats.url().replace("nats://", "tls://"), format!("amqps://{login}:{port}")] {
        let database = testbed::postgres::shared().unwrap().create().unwrap();
        let cluster = Cluster::new(database.url(), 1, &[]).with_queue(&queue);
        let stranger = cluster.start_unready("produce", "stranger", "127.0.0.1:0");
        eventually("it does not trust the broker", || stranger.said().contains("certificate"));
        let cluster = cluster.with("BELFRY__QUEUE__CA_FILE", path("ca.pem").display().to_string());
        cluster.start("produce", "producer").stop();
    }
}

#[test]
fn what_an_application_inserts_is_delivered_and_what_cannot_be_is_put_aside() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let cluster = Cluster::new(database.url(), 3, &[]);
    let engine = cluster.start("serve", "engine");
    let row = |channel: &str, number| {
        let to = token(number);
        format!(
            "INSERT INTO belfry.outbox (tenant, channel, recipient, content) \
             VALUES ('default', '{channel}', '{to}', '{{\"aps\":{{}}}}')"
        )
    };
    database.query(&format!("BEGIN; {}; ROLLBACK", row("ios", 0))).unwrap();
    database.query(&format!("BEGIN; {}; {}; COMMIT", row("ios", 1), row("sms", 2))).unwrap();
    cluster.drained(&engine, 1);
    eventually("the row of an unknown channel is told", || {
        cluster.status(&engine)["cluster"]["outbox_rejected"] == 1
    });
    let reason = database.query("SELECT reason FROM belfry.outbox_rejected").unwrap();
    assert!(reason.contains("there is no channel \"sms\""), "{reason}");
    let books = cluster.books();
    assert_eq!(books.tally_of(1..2).accepted, 1);
    assert_eq!(books.tally().accepted, 1, "what was rolled back was never sent");
    engine.stop();
}

/// Numbers of a token that the provider knows no more, and of one behind it that it knows, when half of them are dead.
fn gone_and_good() -> (u64, u64) {
    let mut numbers = 0..;
    let mut next = |is_dead: bool| {
        numbers.find(|number| provider_sim::is_dead(&token(*number), 0.5) == is_dead).unwrap()
    };
    (next(true), next(false))
}

#[test]
fn a_row_from_a_template_is_rendered_and_its_fallback_used_once_it_is_refused() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let (gone, good) = gone_and_good();
    let cluster = Cluster::new(database.url(), good + 1, &["--dead-tokens", "0.5"])
        .with("BELFRY__TEMPLATES__HELLO__CONTENT", r#"{ aps = { alert = "{{ name }}" } }"#);
    let engine = cluster.start("serve", "engine");
    let row = |to: u64, template: &str| {
        let (to, next) = (token(to), token(good));
        format!(
            "INSERT INTO belfry.outbox (channel, recipient, template, variables, fallback) VALUES \
             ('ios', '{to}', '{template}', '{{\"name\": \"Ann\"}}', \
             '[{{\"channel\": \"ios\", \"to\": \"{next}\", \"content\": {{\"aps\": {{\"alert\": \"{{{{ name }}}}!\"}}}}}}]')"
        )
    };
    database.query(&format!("{}; {}", row(gone, "hello"), row(gone, "hallo"))).unwrap();
    cluster.drained(&engine, 2);
    let reason = database.query("SELECT reason FROM belfry.outbox_rejected").unwrap();
    assert!(reason.starts_with("template: there is no template \"hallo\""), "{reason}");
    let audit = cluster.audit(&engine);
    assert!(audit.balanced, "{audit:?}");
    assert_eq!((audit.delivered, audit.refused), (1, 1), "{audit:?}");
    assert_eq!(cluster.books().tally_of(good..good + 1).accepted, 1);
    engine.stop();
}

#[test]
fn a_row_is_found_by_its_labels_as_is_what_stands_in_for_it() {
    const METADATA: &str = r#"{ "order": 7, "b": 1.10, "b": "\u0061" }"#;
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let (gone, good) = gone_and_good();
    let cluster = Cluster::new(database.url(), good + 1, &["--dead-tokens", "0.5"]);
    let engine = cluster.start("serve", "engine");
    let row = |tags: &str| {
        let (to, next) = (token(gone), token(good));
        format!(
            "INSERT INTO belfry.outbox (channel, recipient, content, fallback, external_id, tags, metadata) VALUES \
             ('ios', '{to}', '{{\"aps\": {{}}}}', '[{{\"channel\": \"ios\", \"to\": \"{next}\", \"content\": {{\"aps\": {{}}}}}}]', \
             'user 42', '{tags}', ' {METADATA} ')"
        )
    };
    let (right, wrong) = (row(r#"["order", "\u006dail", "order"]"#), row(r#"["order", ""]"#));
    database.query(&format!("{right}; {wrong}")).unwrap();
    cluster.drained(&engine, 2);
    let reason = database.query("SELECT reason, tags FROM belfry.outbox_rejected").unwrap();
    assert_eq!(reason, r#"tags/1: must have 1 to 64 bytes, has 0|["order", ""]"#);
    for query in ["external_id=user%2042", "tag=order", "tag=mail"] {
        let page = engine.fetch(&format!("/v1/notifications?{query}")).unwrap();
        assert_eq!(page.matches(&format!("\"metadata\":{METADATA}")).count(), 2, "{page}");
        let page: Value = serde_json::from_str(&page).unwrap();
        let items = page["items"].as_array().unwrap();
        let sent_to: Vec<&str> = items.iter().map(|item| item["to"].as_str().unwrap()).collect();
        assert_eq!(sent_to, [token(gone), token(good)]);
        for item in items {
            let labels = (&item["external_id"], &item["tags"]);
            assert_eq!(labels, (&json!("user 42"), &json!(["order", "mail"])));
        }
    }
    engine.stop();
}
