//! The conformance suite.

use async_trait::async_trait;
use stream::conformance::{Carried, TestedStream, exercise};
use stream::{Source, Target};

use crate::Topic;

#[async_trait]
impl TestedStream for Topic {
    async fn source(&self) -> Box<dyn Source> {
        Box::new(Topic::source(self))
    }

    async fn target(&self) -> Box<dyn Target> {
        Box::new(Topic::target(self))
    }

    fn carries(&self) -> Carried {
        Carried { key: true, binary: true, id: true, single: true, shared: true }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_is_a_stream() {
    exercise(async || Box::new(Topic::new(2).await) as Box<dyn TestedStream>).await;
}
