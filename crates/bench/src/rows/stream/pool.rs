//! The pool of threads that a relay replaces: each receives a message, puts it, deletes it, one blocking call after the other.

use std::thread;

use anyhow::{Context as _, Result};
use aws_sdk_kinesis::primitives::Blob;
use stream::aws::{AwsUrl, sdk_config};

/// Moves messages from the queue `from` to the stream `to` (URLs of `belfry relay`) by so many `threads`, until it is killed.
///
/// # Errors
/// When a URL is none, or a call fails; a thread that waits for the next message goes on until then.
pub fn pool_main(from: &str, to: &str, threads: usize) -> Result<()> {
    let workers = (0..threads).map(|_| {
        let (from, to) = (AwsUrl::parse(from, "sqs")?, AwsUrl::parse(to, "kinesis")?);
        Ok(thread::spawn(move || work(&from, &to)))
    });
    let workers: Vec<_> = workers.collect::<Result<_>>()?;
    for worker in workers {
        match worker.join() {
            Ok(ended) => ended?,
            Err(_panicked) => anyhow::bail!("a worker panicked"),
        }
    }
    Ok(())
}

fn work(from: &AwsUrl, to: &AwsUrl) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sqs = aws_sdk_sqs::Client::new(&runtime.block_on(sdk_config(&from.aws))?);
    let kinesis = aws_sdk_kinesis::Client::new(&runtime.block_on(sdk_config(&to.aws))?);
    let found = runtime.block_on(sqs.get_queue_url().queue_name(&from.name).send())?;
    let url = found.queue_url.context("the queue has a URL")?;
    loop {
        let receive = sqs.receive_message().queue_url(&url).max_number_of_messages(1);
        let received = runtime.block_on(receive.wait_time_seconds(1).send())?;
        for message in received.messages.unwrap_or_default() {
            let (body, id) = (message.body.unwrap_or_default(), message.message_id);
            let put = kinesis.put_record().stream_name(&to.name).data(Blob::new(body));
            runtime.block_on(put.partition_key(id.unwrap_or_default()).send())?;
            let handle = message.receipt_handle.unwrap_or_default();
            runtime.block_on(sqs.delete_message().queue_url(&url).receipt_handle(handle).send())?;
        }
    }
}
