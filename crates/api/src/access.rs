//! Access of handlers to the store: all may read; one that changes something asks for [`WithOperations`] in its signature.

use std::sync::Arc;

use axum::extract::FromRef;

use crate::ApiState;

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
