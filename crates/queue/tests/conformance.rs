//! The in-process queue passes the conformance suite.

use std::sync::Arc;

use notification::Chunk;
use queue::Memory;
use queue::conformance::{Subject, exercise};

#[tokio::test]
async fn the_in_process_queue_is_a_queue() {
    exercise(|| async {
        let queue: Memory<Arc<Chunk>> = Memory::new(usize::MAX);
        let closing = queue.clone();
        Subject {
            publish: Arc::new(queue.clone()),
            consume: Arc::new(queue),
            close: async move || closing.close(),
        }
    })
    .await;
}
