//! The listeners of the binary from outside: TLS, Unix sockets, an operator's address, and proxies in front.
#![cfg(test)]

mod client_certificate;
mod operator;
mod proxies;
mod shares;
mod support;
mod tls;
mod unix;
