//! Sources that are opened with their first fetch, since opening them asks their service.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use stream::{Source, StreamError, StreamMessage, StreamReceipt};
use tokio::sync::OnceCell;

/// Opens something that asks its service, as often as it is called.
type Opener<T> = Box<dyn Fn() -> BoxFuture<'static, Result<T, StreamError>> + Send + Sync>;

/// A source that is opened with the first fetch; every fetch tries again until that is done.
pub(super) struct LateSource {
    opened: OnceCell<Box<dyn Source>>,
    open: Opener<Box<dyn Source>>,
}

// === impl LateSource ===

impl LateSource {
    /// The source that `open` gives.
    pub(super) fn new<F>(open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Box<dyn Source>, StreamError>> + Send + 'static,
    {
        Self { opened: OnceCell::new(), open: Box::new(move || Box::pin(open())) }
    }
}

#[async_trait]
impl Source for LateSource {
    async fn fetch(
        &self,
        messages: usize,
        wait: Duration,
    ) -> Result<Vec<StreamMessage>, StreamError> {
        self.opened.get_or_try_init(|| (self.open)()).await?.fetch(messages, wait).await
    }

    async fn acknowledge(&self, receipts: &[StreamReceipt]) -> Vec<Result<(), StreamError>> {
        match self.opened.get() {
            Some(source) => source.acknowledge(receipts).await,
            None => vec![
                Err(StreamError::Refused("nothing was fetched yet".to_owned()));
                receipts.len()
            ],
        }
    }

    async fn give_back(&self, receipts: &[StreamReceipt]) {
        if let Some(source) = self.opened.get() {
            source.give_back(receipts).await;
        }
    }

    async fn close(&self) {
        if let Some(source) = self.opened.get() {
            source.close().await;
        }
    }
}

impl fmt::Debug for LateSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LateSource").field("opened", &self.opened).finish_non_exhaustive()
    }
}
