//! A request with many items yields to other requests now and then.

/// The work of one request since it last yielded. A body may hold ten thousand notifications: another request waits for a few of
/// them at most.
#[derive(Debug)]
pub(crate) struct YieldBudget {
    work: usize,
    budget: usize,
}

/// Items between two yields; fewer where they are long.
const BUDGET_ITEMS: usize = 8;
/// Items between two yields where they are read and checked only, less than a microsecond each: a yield has the runtime look for events of the
/// system, which would cost as much as eight of them.
const BUDGET_PLAIN_ITEMS: usize = 128;
/// Bytes that count as one more item.
const ITEM_BYTES: usize = 512;

// === impl YieldBudget ===

impl YieldBudget {
    /// A budget for items of which nothing is rendered or stored on the way.
    pub(crate) fn of_plain_items() -> Self {
        Self { work: 0, budget: BUDGET_PLAIN_ITEMS }
    }

    /// Counts an item of so many bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.work += 1 + bytes / ITEM_BYTES;
    }

    /// True if the budget is spent.
    pub(crate) fn is_spent(&self) -> bool {
        self.work >= self.budget
    }

    /// Yields to other tasks if the budget is spent, and begins a new one.
    pub(crate) async fn yield_if_spent(&mut self) {
        if self.is_spent() {
            self.work = 0;
            tokio::task::yield_now().await;
        }
    }

    /// Counts an item of so many bytes, and yields when the budget is spent.
    pub(crate) async fn spend_and_yield(&mut self, bytes: usize) {
        self.spend(bytes);
        self.yield_if_spent().await;
    }
}

impl Default for YieldBudget {
    fn default() -> Self {
        Self { work: 0, budget: BUDGET_ITEMS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn other_tasks_run_after_a_few_items_or_one_long_one() {
        let check = async |mut budget: YieldBudget, bytes: usize, items: usize| {
            let other = async {
                // Runs when the first has yielded.
                std::future::ready(()).await;
            };
            let mut counted = 0;
            let mut items_of_first = Box::pin(async {
                loop {
                    counted += 1;
                    budget.spend_and_yield(bytes).await;
                }
            });
            tokio::select! {
                biased;
                () = &mut items_of_first => {}
                () = other => {}
            }
            drop(items_of_first);
            assert_eq!(counted, items, "{bytes}");
        };
        check(YieldBudget::default(), 0, 8).await;
        check(YieldBudget::default(), 700, 4).await;
        check(YieldBudget::default(), 64 * 1024, 1).await;
        check(YieldBudget::of_plain_items(), 100, 128).await;
        check(YieldBudget::of_plain_items(), 64 * 1024, 1).await;
    }
}
