//! The search index: keeping it is work of its own, made after the fact and in small steps (decision 0053).

use async_trait::async_trait;

use crate::StoreError;

/// Keeps the index by which [`ReadStore::list`](crate::ReadStore::list) finds the notifications of a recipient. A list is complete
/// however far the index has come: what it has not reached is walked over. A store without an index has nothing to do.
#[async_trait]
pub trait SearchIndex: Send + Sync + std::fmt::Debug {
    /// Takes one step of the work that there is, of some 10 ms; true if there may be more. A process that ends at any moment
    /// leaves an index that is whole.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] while the disk has no room for new notifications: the index takes nothing of what is kept free for
    /// those that were accepted.
    async fn advance(&self) -> Result<bool, StoreError>;
}
