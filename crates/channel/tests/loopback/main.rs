//! The channels against servers on loopback: some behave, most do not.

#[cfg(test)]
mod apns;
#[cfg(test)]
mod apns_identity;
#[cfg(test)]
mod apns_time;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod fcm;
#[cfg(test)]
mod fence;
#[cfg(test)]
mod http1_answers;
#[cfg(test)]
mod mail_servers;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod smtp;
#[cfg(test)]
mod smtp_hostile;
#[cfg(test)]
mod smtp_route;
#[cfg(test)]
mod smtp_session;
#[cfg(test)]
mod smtp_ssrf;
#[cfg(test)]
mod ssrf;
#[cfg(test)]
mod support;
#[cfg(test)]
mod webhook;
#[cfg(test)]
mod webpush;
#[cfg(test)]
mod webpush_faults;
#[cfg(test)]
mod withheld;
