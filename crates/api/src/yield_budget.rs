//! A request that has much to read lets others go first now and then.

/// What one request did without a break. A body may hold ten thousand notifications: other requests wait for a few of them at
/// most.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    work: usize,
}

/// Items in one turn; where they are long, fewer.
const TURN_ITEMS: usize = 8;
/// Bytes that count as one more item.
const ITEM_BYTES: usize = 512;

// === impl Turn ===

impl Turn {
    /// Counts an item of so many bytes.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.work += 1 + bytes / ITEM_BYTES;
    }

    /// Whether it was enough.
    pub(crate) fn is_over(&self) -> bool {
        self.work >= TURN_ITEMS
    }

    /// Lets others run if it was enough.
    pub(crate) async fn pass(&mut self) {
        if self.is_over() {
            self.work = 0;
            tokio::task::yield_now().await;
        }
    }

    /// Counts an item of so many bytes, and lets others run when that was enough.
    pub(crate) async fn counted(&mut self, bytes: usize) {
        self.count(bytes);
        self.pass().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn others_run_after_a_few_items_or_one_long_one() {
        let check = async |bytes: usize, items: usize| {
            let mut turn = Turn::default();
            let others = async {
                // Runs when the first has made way.
                std::future::ready(()).await;
            };
            let mut counted = 0;
            let mut items_of_first = Box::pin(async {
                loop {
                    counted += 1;
                    turn.counted(bytes).await;
                }
            });
            tokio::select! {
                biased;
                () = &mut items_of_first => {}
                () = others => {}
            }
            drop(items_of_first);
            assert_eq!(counted, items, "{bytes}");
        };
        check(0, 8).await;
        check(700, 4).await;
        check(64 * 1024, 1).await;
    }
}
