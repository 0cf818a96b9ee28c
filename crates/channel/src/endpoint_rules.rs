//! Which endpoints callers may name, as far as that can be said without resolving names.

use net::endpoint::{Host, Origin};
use net::guard::Guard;

use crate::Invalid;

/// Says which endpoints are acceptable.
#[derive(Debug, Clone)]
pub(crate) struct EndpointRules {
    /// Says which addresses may be connected to.
    pub(crate) guard: Guard,
    /// Empty: any.
    pub(crate) allow_ports: Vec<u16>,
}

// === impl EndpointRules ===

impl EndpointRules {
    /// Admits endpoints of `origin`.
    pub(crate) fn check(&self, origin: &Origin) -> Result<(), Invalid> {
        if !self.allow_ports.is_empty() && !self.allow_ports.contains(&origin.port) {
            return Err(Invalid::new(format!("has port {}, which is not allowed", origin.port)));
        }
        // Told to the caller at once; a name is judged by the address that it leads to when it is connected to.
        if let Host::Address(address) = origin.host {
            self.guard.check(address).map_err(|error| Invalid::new(error.to_string()))?;
        }
        Ok(())
    }
}
