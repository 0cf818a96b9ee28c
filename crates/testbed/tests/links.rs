//! The effect of a proxy on a conversation.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use testbed::{Direction, Proxy};

/// So long does a test wait before it takes silence for silence.
const SILENCE: Duration = Duration::from_millis(200);
/// So long does it wait for an answer, also on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_mins(1);

/// Answers each byte with its successor, and reports every byte that it reads.
fn successor_server() -> (String, Receiver<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("test://{}", listener.local_addr().unwrap());
    let (report, reports) = sync_channel(1000);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, report) = (stream.unwrap(), report.clone());
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() {
                    report.send(byte[0]).unwrap();
                    if stream.write_all(&[byte[0] + 1]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, reports)
}

fn connect(proxy: &Proxy) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(proxy.url().strip_prefix("test://").unwrap())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_all(&[byte])?;
    hear(stream)
}

fn hear(stream: &mut TcpStream) -> std::io::Result<u8> {
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}

/// True if `stream` gives no answer to `byte`.
fn is_silent(stream: &mut TcpStream, byte: u8) -> bool {
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let answer = ask(stream, byte);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    matches!(answer, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

fn is_closed(answer: std::io::Result<u8>) -> bool {
    matches!(answer, Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn a_cut_link_closes_and_refuses_until_it_passes() {
    let (url, _reports) = successor_server();
    let proxy = Proxy::before(&url).unwrap();
    let mut stream = connect(&proxy).unwrap();
    assert_eq!(ask(&mut stream, 1).unwrap(), 2);
    proxy.cut();
    assert!(is_closed(ask(&mut stream, 1).or_else(|_| hear(&mut stream))));
    assert_eq!(connect(&proxy).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    proxy.pass();
    assert_eq!(ask(&mut connect(&proxy).unwrap(), 4).unwrap(), 5);
}

#[test]
fn a_half_open_link_swallows_everything_and_closes_what_it_robbed() {
    let (url, reports) = successor_server();
    let proxy = Proxy::before(&url).unwrap();
    let mut old = connect(&proxy).unwrap();
    assert_eq!(ask(&mut old, 1).unwrap(), 2);
    proxy.half_open();
    assert!(is_silent(&mut old, 3));
    let mut new = connect(&proxy).unwrap();
    assert!(is_silent(&mut new, 5));
    proxy.pass();
    assert!(is_closed(hear(&mut old)));
    assert!(is_closed(hear(&mut new)));
    assert_eq!(ask(&mut connect(&proxy).unwrap(), 7).unwrap(), 8);
    assert_eq!(reports.try_iter().collect::<Vec<u8>>(), [1, 7], "a byte came through");
}

#[test]
fn a_frozen_link_delivers_late_what_it_held_back() {
    let (url, _reports) = successor_server();
    let proxy = Proxy::before(&url).unwrap();
    let mut old = connect(&proxy).unwrap();
    assert_eq!(ask(&mut old, 1).unwrap(), 2);
    proxy.freeze();
    assert!(is_silent(&mut old, 3));
    let mut new = connect(&proxy).unwrap();
    assert!(is_silent(&mut new, 5));
    proxy.pass();
    assert_eq!(hear(&mut old).unwrap(), 4);
    assert_eq!(hear(&mut new).unwrap(), 6);
}

#[test]
fn a_link_is_cut_at_the_exact_byte() {
    let (url, reports) = successor_server();
    let check = |direction, bytes: usize, expect: &[u8]| {
        let proxy = Proxy::before(&url).unwrap();
        let mut stream = connect(&proxy).unwrap();
        proxy.cut_after_bytes(direction, bytes);
        let answers: Vec<u8> = (10..20).map_while(|byte| ask(&mut stream, byte).ok()).collect();
        assert_eq!(answers, expect, "{direction:?} {bytes}");
        assert!(!proxy.is_cut_pending());
        assert_eq!(ask(&mut connect(&proxy).unwrap(), 99).unwrap(), 100, "it passes again");
        while reports.recv().unwrap() != 99 {}
    };
    check(Direction::ToServer, 0, &[]);
    check(Direction::ToServer, 3, &[11, 12]);
    check(Direction::ToClient, 0, &[]);
    check(Direction::ToClient, 3, &[11, 12, 13]);
}

#[test]
fn the_server_reads_what_passed_before_the_cut() {
    let (url, reports) = successor_server();
    let proxy = Proxy::before(&url).unwrap();
    let mut stream = connect(&proxy).unwrap();
    proxy.cut_after_bytes(Direction::ToServer, 3);
    assert!(stream.write_all(&[1, 2, 3, 4, 5]).is_ok());
    assert!(is_closed(hear(&mut stream)), "an answer came back");
    let read: Vec<u8> = (0..3).map(|_| reports.recv().unwrap()).collect();
    assert_eq!(read, [1, 2, 3]);
    assert_eq!(proxy.passed(Direction::ToServer), 3);
    assert_eq!(proxy.passed(Direction::ToClient), 0);
}
