//! The simulator over real sockets, by clients that share nothing with it.
#![expect(clippy::unwrap_used, reason = "all of it is test code: a failure here fails the test")]

mod support;

mod apns;
mod books;
mod faults;
#[cfg(test)]
mod fcm;
mod webhook;
mod webpush;
