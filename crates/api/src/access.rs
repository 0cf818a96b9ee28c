//! Access of handlers to the store: all may read, within the share of their caller's tenant; one that changes something asks for
//! [`WithOperations`] in its signature.

use std::sync::Arc;

use axum::extract::FromRef;
use store::{Patience, ReadStore};

use crate::ApiState;
use crate::caller::Caller;

/// The operations of the store, locked up: handlers get at them as [`WithOperations`] only.
#[derive(Debug)]
pub struct Locked(Arc<dyn store::Operations>);

/// The operations of the store, for a handler that changes something.
pub(crate) struct WithOperations(pub(crate) Arc<dyn store::Operations>);

// === impl Locked ===

impl Locked {
    /// Locks `operations` up.
    pub fn new(operations: Arc<dyn store::Operations>) -> Self {
        Self(operations)
    }
}

// === impl WithOperations ===

impl FromRef<Arc<ApiState>> for WithOperations {
    fn from_ref(shared: &Arc<ApiState>) -> Self {
        Self(Arc::clone(&shared.operations.0))
    }
}

// === impl ApiState ===

impl ApiState {
    /// The reader for a question of `caller`. Where many of its tenant's wait, it is refused.
    pub(crate) fn reads_of(&self, caller: &Caller) -> Arc<dyn ReadStore> {
        self.shared_reads(caller, Patience::Bounded)
    }

    /// The reader for a request of `caller` that changes something, or whose answer has begun: it waits however many there are.
    pub(crate) fn patient_reads_of(&self, caller: &Caller) -> Arc<dyn ReadStore> {
        self.shared_reads(caller, Patience::Unbounded)
    }

    fn shared_reads(&self, caller: &Caller, patience: Patience) -> Arc<dyn ReadStore> {
        match caller.sharing() {
            None => Arc::clone(&self.reads),
            Some(tenant) => self.tenant_reads.of_tenant(tenant, patience),
        }
    }
}
