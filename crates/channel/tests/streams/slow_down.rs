//! A service that takes a part of a batch and says "too fast" to the rest, as no local server does: it answers by a script, in the words
//! of AWS's references of `PutRecords` and `SendMessageBatch`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use channel::{Channel, Tools};
use notification::{Report, Verdict};
use stream::OpenTargets;
use stream::kinesis::KinesisTargets;
use stream::sqs::SqsTargets;

use crate::aws::settings;
use crate::{channel, chunk, clock_now, local, send, verdicts};

/// A server that answers to every call of an action, by its name, with a status and a body. It serves until the test ends.
struct Scripted {
    url: String,
    /// The bodies of the calls that it got.
    calls: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn start(answer: fn(&str) -> (u16, String)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, heard) = (stream.unwrap(), Arc::clone(&heard));
                std::thread::spawn(move || serve(&stream, answer, &heard));
            }
        });
        Self { url, calls }
    }
}

fn serve(
    stream: &TcpStream,
    answer: fn(&str) -> (u16, String),
    calls: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut input = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            input.read_line(&mut head).ok().filter(|bytes| *bytes > 0)?;
        }
        let head = head.to_ascii_lowercase();
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        if let Some(text) = value("content-length: ") {
            length = text.parse().unwrap();
        }
        let action = value("x-amz-target: ").and_then(|target| target.split('.').nth(1)).unwrap();
        let mut body = vec![0; length];
        input.read_exact(&mut body).unwrap();
        calls.lock().unwrap().push(String::from_utf8(body).unwrap());
        let (status, body) = answer(action);
        let length = body.len();
        write!(
            &*stream,
            "HTTP/1.1 {status} Answer\r\ncontent-type: application/x-amz-json-1.1\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .ok()?;
    }
}

fn acted(reports: &std::collections::BTreeMap<u16, Report>) -> Vec<bool> {
    let acted =
        |report: &Report| matches!(report, Report::Attempted(answer) if answer.may_have_acted);
    reports.values().map(acted).collect()
}

#[tokio::test]
async fn what_kinesis_has_no_throughput_for_is_put_off_alone() {
    let server = Scripted::start(|action| {
        match action {
        "putrecords" => {
            let taken = r#"{"SequenceNumber":"1","ShardId":"shardId-000000000000"}"#;
            let busy = r#"{"ErrorCode":"ProvisionedThroughputExceededException","ErrorMessage":"Rate exceeded for shard shardId-000000000001"}"#;
            let failed = r#"{"ErrorCode":"InternalFailure","ErrorMessage":"Internal service failure."}"#;
            (200, format!(r#"{{"FailedRecordCount":2,"Records":[{taken},{busy},{failed},{taken}]}}"#))
        }
        _look_up => (
            200,
            r#"{"StreamDescriptionSummary":{"StreamName":"s","StreamARN":"a","StreamStatus":"ACTIVE","RetentionPeriodHours":24,"StreamCreationTimestamp":1,"EnhancedMonitoring":[],"OpenShardCount":2}}"#.to_owned(),
        ),
    }
    });
    let clock = clock_now();
    let open: Arc<dyn OpenTargets> =
        Arc::new(KinesisTargets { aws: settings(&server.url), ordered: false, clock });
    local(async {
        let sender = channel("kinesis", open).open(Tools::new(clock, 1)).unwrap();
        let reports = send(&*sender, clock, &chunk(clock, "kinesis:s", 4), None).await;
        let deferred = Verdict::Deferred { after: None };
        assert_eq!(
            verdicts(&reports),
            [Verdict::Accepted, deferred, Verdict::Unknown, Verdict::Accepted]
        );
        assert_eq!(acted(&reports)[1..3], [false, true]);
        sender.close().await;
    })
    .await;
    assert_eq!(
        server.calls.lock().unwrap().len(),
        2,
        "a look-up and a put: nothing is repeated here"
    );
}

#[tokio::test]
async fn what_sqs_says_of_an_entry_or_of_a_call_is_the_verdict_on_each() {
    let server = Scripted::start(|action| {
        match action {
        "sendmessagebatch" => (
            200,
            r#"{"Successful":[{"Id":"0","MessageId":"m","MD5OfMessageBody":"x"}],
                "Failed":[{"Id":"1","SenderFault":true,"Code":"RequestThrottled","Message":"slow down"},
                          {"Id":"2","SenderFault":true,"Code":"InvalidMessageContents","Message":"no"},
                          {"Id":"3","SenderFault":false,"Code":"InternalError","Message":"oh"}]}"#
                .to_owned(),
        ),
        _look_up => (200, r#"{"QueueUrl":"http://127.0.0.1/1/q"}"#.to_owned()),
    }
    });
    let clock = clock_now();
    let open: Arc<dyn OpenTargets> =
        Arc::new(SqsTargets { aws: settings(&server.url), account: None, clock });
    local(async {
        let sender = channel("sqs", open).open(Tools::new(clock, 1)).unwrap();
        let reports = send(&*sender, clock, &chunk(clock, "sqs:q", 4), None).await;
        let expected = [
            Verdict::Accepted,
            Verdict::Deferred { after: None },
            Verdict::Refused { gone: false },
            Verdict::Unknown,
        ];
        assert_eq!(verdicts(&reports), expected);
        sender.close().await;
    })
    .await;
    let server = Scripted::start(|action| match action {
        "sendmessagebatch" => (
            400,
            r#"{"__type":"com.amazonaws.sqs#RequestThrottled","message":"slow down"}"#.to_owned(),
        ),
        _look_up => (200, r#"{"QueueUrl":"http://127.0.0.1/1/q"}"#.to_owned()),
    });
    let open: Arc<dyn OpenTargets> =
        Arc::new(SqsTargets { aws: settings(&server.url), account: None, clock });
    local(async {
        let sender = channel("sqs", open).open(Tools::new(clock, 1)).unwrap();
        let reports = send(&*sender, clock, &chunk(clock, "sqs:q", 3), None).await;
        assert_eq!(verdicts(&reports), [Verdict::Deferred { after: None }; 3]);
        assert_eq!(acted(&reports), [false; 3]);
        sender.close().await;
    })
    .await;
}
