//! Streams.

use stream::StreamError;
use stream::kinesis::{KinesisSettings, KinesisTarget};

use crate::aws;

fn settings(endpoint: &str, stream: &str) -> KinesisSettings {
    let url = format!("kinesis://{stream}");
    KinesisSettings { aws: aws(endpoint), ..KinesisSettings::from_url(&url).unwrap() }
}

#[tokio::test]
async fn a_stream_that_is_not_there_is_said() {
    let endpoint = testbed::aws::shared_moto_url().unwrap();
    let error = KinesisTarget::open(&settings(&endpoint, "no-such-stream")).await.unwrap_err();
    let StreamError::Refused(text) = &error else { panic!("{error:?}") };
    assert!(text.contains("no-such-stream") && text.contains("does not exist"), "{text}");
}
