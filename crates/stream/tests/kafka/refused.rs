//! Settings that cannot work: it is said with what to do, and without secrets.

use net::redact::Secret;
use stream::kafka::{KafkaSettings, KafkaSource, KafkaTarget, SaslMechanism};
use stream::{PutError, Source, StreamError, Target};
use testbed::{Kafka, ServerIdentity};

use crate::{PATIENCE, Topic, acknowledge, fetch, record};

/// Errors of a source and a target by these settings.
async fn complaints(settings: &KafkaSettings) -> [String; 2] {
    let source = KafkaSource::open(settings.clone(), fastrand::Rng::with_seed(1)).unwrap();
    let fetched = source.fetch(1, PATIENCE).await;
    let Err(StreamError::Refused(read) | StreamError::Unavailable(read)) = fetched else {
        panic!("{fetched:?}")
    };
    source.close().await;
    let target = KafkaTarget::new(settings.clone()).unwrap();
    let put = target.put(&[record(1, 1)]).await;
    let Some(Err(PutError::NotTaken(written))) = put.first() else { panic!("{put:?}") };
    target.close().await;
    [read, written.clone()]
}

async fn check(settings: &KafkaSettings, words: &[&str]) {
    for text in complaints(settings).await {
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_said_with_what_to_do() {
    let settings = Topic::new(1).await.settings;
    let wrong = Some(Secret::new("secret"));
    let of = |change: &dyn Fn(&mut KafkaSettings)| {
        let mut settings = settings.clone();
        change(&mut settings);
        settings
    };
    check(&of(&|it| it.password = wrong.clone()), &["refuses this user", "correct the address"])
        .await;
    let scram = of(&|it| {
        (it.password, it.mechanism) = (wrong.clone(), SaslMechanism::ScramSha512);
    });
    check(&scram, &["refuses this user", "correct the address"]).await;
    check(&of(&|it| it.topic = "nowhere".into()), &["no topic \"nowhere\"", "create it"]).await;
    check(&of(&|it| it.brokers = vec!["127.0.0.1:9".into()]), &["cannot reach", "127.0.0.1:9"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_comes_by_scram_and_by_tls() {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
    let pem = certificate.clone();
    let node = tokio::task::spawn_blocking(move || {
        let identity = ServerIdentity { certificate: &pem, key: &key };
        Kafka::start_with("", Some(identity)).unwrap()
    });
    let node = node.await.unwrap();
    let mut topic = Topic::at(&node.url(), 1).await;
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, certificate).unwrap();
    let address = format!("{}/t?security=sasl_ssl", node.tls_url());
    let tls: KafkaSettings = address.parse().unwrap();
    let plain = topic.settings.clone();
    let mut count = 0;
    for (brokers, security) in [(plain.brokers, None), (tls.brokers.clone(), tls.security)] {
        for mechanism in
            [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512]
        {
            (topic.settings.brokers, topic.settings.security) = (brokers.clone(), security);
            topic.settings.mechanism = mechanism;
            topic.settings.ca_file = security.is_some().then(|| ca_file.clone());
            topic.put(count..count + 1, 1).await;
            let source = topic.source();
            acknowledge(&source, &fetch(&source, 1).await).await;
            source.close().await;
            count += 1;
        }
    }
    topic.settings.ca_file = None;
    check(&topic.settings, &["certificate"]).await;
}
