//! The channels against servers on loopback: some behave, most do not.

#[cfg(test)]
mod apns;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod support;
#[cfg(test)]
mod webhook;
