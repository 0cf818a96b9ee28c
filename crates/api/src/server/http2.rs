//! HTTP/2: its bounds, and a connection from its preface to its end.

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{MissedTickBehavior, interval};

use super::served_site::{FirstHead, ServedSite};
use super::stream_activity::{ConnectionState, LOOK_EVERY, NotedBody, StreamActivity};
use super::stream_tasks::{StreamSpawner, StreamTasks};
use crate::limits::{
    CONNECTION_WINDOW_BYTES, FAULTY_STREAMS, HEADER_LIST_BYTES, PING_INTERVAL, PING_TIMEOUT,
    RESET_STREAMS, STREAM_SEND_BYTES, STREAM_WINDOW_BYTES, STREAMS,
};
use crate::unauthenticated::ConnectionNote;

/// Serves HTTP/2 on `stream` until the caller goes, says nothing for too long, or does not take its answers.
pub(super) async fn serve<S>(
    stream: S,
    note: ConnectionNote,
    served: ServedSite,
    first_head: FirstHead,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stopping = served.stopping.clone();
    let (tasks, activity) = (StreamTasks::default(), StreamActivity::default());
    let service = {
        let (note, served, activity) = (note.clone(), served.clone(), activity.clone());
        service_fn(move |request: hyper::Request<Incoming>| {
            let mut stream = activity.begin();
            let (note, served) = (note.clone(), served.clone());
            async move {
                stream.set_task();
                let answer = served.answer(&note, request).await;
                answer.map(|mut answer| {
                    stream.hold(answer.extensions_mut().remove());
                    answer.map(|body| NotedBody::new(body, stream))
                })
            }
        })
    };
    let connection = builder(tasks.spawner(served)).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once.
    looks.tick().await;
    let (missed, unwanted) = (first_head.missed(&note), note.unwanted());
    tokio::pin!(missed, unwanted);
    let mut is_stopping = false;
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = &mut missed => return,
            _ = stopping.changed(), if !is_stopping => {
                is_stopping = true;
                // Requests under way are finished, within the time that the server gives to all of them.
                connection.as_mut().graceful_shutdown();
            }
            () = &mut unwanted, if !is_stopping => {
                // Its tenant has too many: it is told to go, and requests of others that it carries are finished.
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = looks.tick() => match activity.look() {
                ConnectionState::Good(stalled) => stalled.into_iter().for_each(|task| {
                    tracing::debug!("answer not taken by its caller");
                    tasks.abort(task);
                }),
                ConnectionState::Idle => connection.as_mut().graceful_shutdown(),
                ConnectionState::Gone => return,
            },
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection broke");
    }
}

fn builder(spawner: StreamSpawner) -> http2::Builder<StreamSpawner> {
    let mut builder = http2::Builder::new(spawner);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_LIST_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(STREAM_SEND_BYTES)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_local_error_reset_streams(FAULTY_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
