//! Each server starts, answers, is ended hard, comes back with its data, and is wiped.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use testbed::{ElasticMq, Moto, Nats, PostgresServer, RabbitMq, postgres};

#[test]
fn postgres_keeps_what_it_committed_through_an_immediate_stop() {
    let mut server = PostgresServer::start().unwrap();
    let database = server.create_database().unwrap();
    database.query("CREATE TABLE bell (note int); INSERT INTO bell VALUES (7)").unwrap();
    server.stop_immediate().unwrap();
    assert!(database.query("SELECT 1").is_err(), "it answered after it was stopped");
    server.start_again().unwrap();
    assert_eq!(database.query("SELECT note FROM bell").unwrap(), "7");
}

#[test]
fn postgres_refuses_a_wrong_password() {
    let server = PostgresServer::start().unwrap();
    let wrong = server.url().replace("a-password", "another");
    let psql = server.bin_dir().join("psql");
    let output = Command::new(psql).args(["-c", "SELECT 1", &wrong]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("password authentication failed"), "{said}");
}

#[test]
fn databases_of_the_shared_server_are_apart_and_can_be_copied() {
    let databases = postgres::shared().unwrap();
    let first = databases.create().unwrap();
    first.query("CREATE TABLE bell (note int); INSERT INTO bell VALUES (7)").unwrap();
    let second = databases.create().unwrap();
    assert!(second.query("SELECT note FROM bell").is_err());
    let copy = databases.create_like(&first).unwrap();
    assert_eq!(copy.query("SELECT note FROM bell").unwrap(), "7");
    let name = copy.query("SELECT current_database()").unwrap();
    drop(copy);
    let left = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    assert_eq!(first.query(&left).unwrap(), "0");
}

#[test]
fn nats_keeps_its_streams_through_a_kill_and_loses_them_when_wiped() {
    let mut server = Nats::start().unwrap();
    let create = r#"{"name":"bells","subjects":["bells"]}"#;
    let created = nats_request(&server, "$JS.API.STREAM.CREATE.bells", create);
    assert!(created.contains(r#""name":"bells""#), "{created}");
    server.kill().unwrap();
    assert!(TcpStream::connect(address_of(&server.url())).is_err());
    server.start_again().unwrap();
    let names = nats_request(&server, "$JS.API.STREAM.NAMES", "");
    assert!(names.contains(r#"["bells"]"#), "{names}");
    server.wipe().unwrap();
    let names = nats_request(&server, "$JS.API.STREAM.NAMES", "");
    assert!(names.contains(r#""streams":null"#), "{names}");
    let twice = server.start_again().unwrap_err().to_string();
    assert!(twice.contains("runs already"), "{twice}");
}

#[test]
fn rabbitmq_comes_back_from_a_kill_and_leaves_nothing_behind() {
    let mut server = RabbitMq::start().unwrap();
    let process = server.process().unwrap();
    let data = environment_of(process, "RABBITMQ_MNESIA_BASE");
    let before = std::fs::read_dir(&data).unwrap().count();
    assert!(before > 0);
    server.kill().unwrap();
    assert!(TcpStream::connect(address_of(&server.url())).is_err());
    server.start_again().unwrap();
    assert_ne!(server.process(), Some(process));
    let mark = Path::new(&data).join("mark");
    std::fs::write(&mark, "").unwrap();
    server.wipe().unwrap();
    assert!(!mark.exists(), "the old data is still there");
    assert!(TcpStream::connect(address_of(&server.url())).is_ok());
    let last = server.process().unwrap();
    drop(server);
    assert!(!Path::new(&format!("/proc/{last}")).exists());
    assert!(!Path::new(&data).exists());
}

#[test]
fn elasticmq_keeps_its_queues_through_a_kill_and_loses_them_when_wiped() {
    let mut server = ElasticMq::start().unwrap();
    let create = sqs_request(&server.url(), "Action=CreateQueue&QueueName=bells");
    assert!(create.contains("/bells"), "{create}");
    let queue = "QueueUrl=http://127.0.0.1/000000000000/bells";
    let sent = sqs_request(&server.url(), &format!("Action=SendMessage&MessageBody=ding&{queue}"));
    assert!(sent.contains("MessageId"), "{sent}");
    server.kill().unwrap();
    assert!(TcpStream::connect(address_of(&server.url())).is_err());
    server.start_again().unwrap();
    let received = sqs_request(&server.url(), &format!("Action=ReceiveMessage&{queue}"));
    assert!(received.contains("ding"), "{received}");
    server.wipe().unwrap();
    let listed = sqs_request(&server.url(), "Action=ListQueues");
    assert!(!listed.contains("/bells"), "{listed}");
}

#[test]
fn moto_answers_for_sqs() {
    let server = Moto::start().unwrap();
    let create = sqs_request(&server.url(), "Action=CreateQueue&QueueName=bells");
    assert!(create.contains("/bells"), "{create}");
    let last = server.process().unwrap();
    drop(server);
    assert!(!Path::new(&format!("/proc/{last}")).exists());
}

/// The one way in which a server could be forgotten.
#[test]
fn servers_end_with_an_owner_that_is_killed() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["nats", "postgres"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let addresses: Vec<String> = [lines.next(), lines.next()]
        .map(|line| address_of(line.unwrap().unwrap().split_once('=').unwrap().1).to_owned())
        .into();
    for address in &addresses {
        assert!(TcpStream::connect(address).is_ok(), "{address} does not answer");
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    // Ends when both are gone, or never.
    for address in addresses {
        while TcpStream::connect(&address).is_ok() {
            std::thread::yield_now();
        }
    }
}

fn address_of(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    rest.rsplit('@').next().unwrap().split('/').next().unwrap()
}

/// One request of SQS's older protocol, which needs no library.
fn sqs_request(url: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address_of(url)).unwrap();
    let length = body.len();
    // The service is told by what the signature is for.
    let scope = "key/20260101/eu-central-1/sqs/aws4_request";
    write!(
        stream,
        "POST / HTTP/1.1\r\nhost: sqs.eu-central-1.amazonaws.com\r\nconnection: close\r\n\
         authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn environment_of(process: u32, name: &str) -> String {
    let environment = std::fs::read_to_string(format!("/proc/{process}/environ")).unwrap();
    let mut variables = environment.split('\0').filter_map(|line| line.split_once('='));
    variables.find(|(key, _)| *key == name).unwrap().1.to_owned()
}

/// One request to the server, in the protocol of NATS.
fn nats_request(server: &Nats, subject: &str, body: &str) -> String {
    let stream = TcpStream::connect(address_of(&server.url())).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let connect = r#"{"verbose":false,"pedantic":false,"user":"belfry","pass":"a-password"}"#;
    let length = body.len();
    let request =
        format!("CONNECT {connect}\r\nSUB inbox 1\r\nPUB {subject} inbox {length}\r\n{body}\r\n");
    writer.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.find(|line| line.starts_with("MSG inbox")).unwrap();
    lines.next().unwrap()
}
