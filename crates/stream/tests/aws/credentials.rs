//! Credentials that are wrong, and roles.

use net::redact::Secret;
use stream::kinesis::KinesisSettings;
use stream::sqs::SqsSettings;
use stream::{PutError, StreamError, Target as _};
use testbed::Moto;

use crate::{aws, create_queue, kinesis_target, record, sqs_target};

#[tokio::test]
async fn wrong_credentials_are_refused_with_what_to_do() {
    let server =
        tokio::task::spawn_blocking(Moto::start_with_authentication).await.unwrap().unwrap();
    let aws = aws(&server.url());
    let settings = SqsSettings::new("q", aws.clone());
    let target = sqs_target(&settings);
    let sqs = target.find().await.unwrap_err();
    // Nothing is wrong with a record: it waits for better credentials.
    let answers = target.put(&[record(None, "a", "one"), record(None, "b", "two")]).await;
    assert!(matches!(&*answers, [Err(PutError::NotTaken(_)), Err(PutError::NotTaken(_))]));
    let url = format!("kinesis://s?region=eu-central-1&endpoint={}", server.url());
    let settings = KinesisSettings { aws, ..KinesisSettings::from_url(&url).unwrap() };
    let kinesis = kinesis_target(&settings).find().await.unwrap_err();
    for error in [sqs, kinesis] {
        let StreamError::Refused(text) = &error else { panic!("{error:?}") };
        assert!(text.contains("refuses these credentials"), "{text}");
        assert!(text.contains("correct the access key") && !text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn a_role_is_assumed() {
    let endpoint = testbed::aws::shared_moto_url().unwrap();
    let queue = create_queue(&endpoint, "").await;
    let mut aws = aws(&endpoint);
    aws.role = Some("arn:aws:iam::123456789012:role/belfry".to_owned());
    aws.external_id = Some("canary".to_owned());
    aws.sts_endpoint = Some("http://127.0.0.1:9".to_owned());
    let mut settings = SqsSettings::new(queue, aws);
    let unreached = sqs_target(&settings).find().await.unwrap_err().to_string();
    assert!(!unreached.contains("canary"), "{unreached}");
    settings.aws.sts_endpoint = Some(endpoint);
    let target = sqs_target(&settings);
    assert_eq!(target.put(&[record(None, "a", "one")]).await, [Ok(())]);
}

#[tokio::test]
async fn a_temporary_key_is_used_and_not_shown() {
    let endpoint = testbed::aws::shared_moto_url().unwrap();
    let mut aws = aws(&endpoint);
    aws.session_token = Some(Secret::new("canary-of-a-session"));
    let queue = create_queue(&endpoint, "").await;
    let target = sqs_target(&SqsSettings::new(queue, aws));
    assert_eq!(target.put(&[record(None, "a", "one")]).await, [Ok(())]);
    assert!(!format!("{target:?}").contains("canary"), "{target:?}");
}

#[tokio::test]
async fn a_profile_that_is_not_there_is_said() {
    let mut aws = aws(&testbed::aws::shared_moto_url().unwrap());
    (aws.access_key_id, aws.secret_access_key) = (None, None::<Secret>);
    aws.profile = Some("no-such-profile".to_owned());
    let settings = SqsSettings::new("q", aws);
    let error = sqs_target(&settings).find().await.unwrap_err();
    assert!(error.to_string().contains("no-such-profile"), "{error}");
}
