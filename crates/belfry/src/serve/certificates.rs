//! The certificate that the server shows: read again when its files change, so that one that is renewed needs no restart.

use std::convert::Infallible;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow::Clock;
use net::setting::SettingError;
use net::tls_server::{ServerTls, ServerTlsFiles, ServerTlsTexts};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::config::fault_of_time;

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The certificate in force, its key, and the authorities of callers' certificates.
#[derive(Debug)]
pub(super) struct Certificates {
    state: Mutex<CertificatesInForce>,
    settings: watch::Sender<Arc<ServerConfig>>,
    not_after: Gauge<i64, AtomicI64>,
    clock: Clock,
}

#[derive(Debug)]
struct CertificatesInForce {
    files: ServerTlsFiles,
    texts: ServerTlsTexts,
    tls: ServerTls,
    /// The mistake in the files that was logged last, so that each is logged once.
    refused: Option<String>,
}

/// Certificates that were read and are good, to take the place of others.
#[derive(Debug)]
pub(super) struct ReadCertificates {
    files: ServerTlsFiles,
    texts: ServerTlsTexts,
    tls: ServerTls,
}

// === impl ReadCertificates ===

impl ReadCertificates {
    /// Reads `files`.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub(super) fn read(files: ServerTlsFiles) -> Result<Self, SettingError> {
        let texts = files.read()?;
        let tls = files.build(&texts)?;
        Ok(Self { files, texts, tls })
    }
}

// === impl Certificates ===

impl Certificates {
    /// Puts `read` in force, by the wall time of `clock`.
    pub(super) fn new(read: ReadCertificates, clock: Clock) -> Self {
        let ReadCertificates { files, texts, tls } = read;
        let not_after = Gauge::default();
        not_after.set(tls.not_after);
        let settings = watch::Sender::new(Arc::clone(&tls.config));
        let state = Mutex::new(CertificatesInForce { files, texts, tls, refused: None });
        Self { state, settings, not_after, clock }
    }

    /// For the listeners: connections that begin go by what is in force then.
    pub(super) fn settings(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.settings.subscribe()
    }

    /// Adds the time until which the certificate is good.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "belfry_server_certificate_not_after_seconds",
            "Unix time until which the certificate of the server is good",
            self.not_after.clone(),
        );
    }

    /// Puts `read` in force; true if it differs from what was.
    pub(super) fn replace(&self, read: ReadCertificates) -> bool {
        let ReadCertificates { files, texts, tls } = read;
        let mut state = self.lock();
        state.refused = None;
        let differs = state.files != files || state.texts != texts;
        state.files = files;
        if differs {
            self.put_in_force(&mut state, texts, tls);
        }
        differs
    }

    /// Looks at the files every [`LOOK_EVERY`] until `stopping` turns true.
    ///
    /// # Errors
    /// None: with files that cannot be used, what was in force stays.
    pub(super) async fn run(
        self: Arc<Self>,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), Infallible> {
        let mut is_good = self.is_good_now();
        while timeout(LOOK_EVERY, stopping.wait_for(|stopping| *stopping)).await.is_err() {
            let certificates = Arc::clone(&self);
            // A file system that hangs must not hold up the stages.
            let looked = tokio::task::spawn_blocking(move || certificates.look()).await;
            if let Err(error) = looked {
                tracing::error!(%error, "looking at the certificate's files failed");
            }
            // Said when it comes to pass, and not at every look.
            let was_good = std::mem::replace(&mut is_good, self.is_good_now());
            if was_good && !is_good {
                tracing::error!(
                    "server.tls.certificate_file: the certificate's time is over: callers refuse it, replace it"
                );
            }
        }
        Ok(())
    }

    /// Puts the files in force if they have changed and can be used.
    fn look(&self) {
        let mut state = self.lock();
        let read = state.files.read().and_then(|texts| {
            // As it is in force, also after a mistake in between.
            if texts == state.texts {
                return Ok(None);
            }
            let tls = state.files.build(&texts)?;
            Ok(Some((texts, tls)))
        });
        match read {
            Ok(None) => state.refused = None,
            Ok(Some((texts, tls))) => {
                state.refused = None;
                self.put_in_force(&mut state, texts, tls);
                tracing::info!("server.tls: new certificate in force for new connections");
            }
            Err(error) => {
                let error = format!("server.tls.{error}");
                if state.refused.as_ref() != Some(&error) {
                    tracing::error!(
                        "{error}; the certificate before stays in force: put it right, and it is used within {LOOK_EVERY:?}"
                    );
                    state.refused = Some(error);
                }
            }
        }
    }

    fn put_in_force(&self, state: &mut CertificatesInForce, texts: ServerTlsTexts, tls: ServerTls) {
        if let Some(fault) = fault_of_time(&tls, self.clock.wall()) {
            tracing::warn!("server.tls.certificate_file: {fault}");
        }
        self.not_after.set(tls.not_after);
        self.settings.send_replace(Arc::clone(&tls.config));
        (state.texts, state.tls) = (texts, tls);
    }

    fn is_good_now(&self) -> bool {
        fault_of_time(&self.lock().tls, self.clock.wall()).is_none()
    }

    fn lock(&self) -> MutexGuard<'_, CertificatesInForce> {
        // Every critical section leaves the state whole, even if it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_cannot_be_used_is_told_of_once_and_the_one_before_stays() {
        let folder = tempfile::tempdir().unwrap();
        let files = ServerTlsFiles {
            certificate: folder.path().join("certificate.pem"),
            key: folder.path().join("key.pem"),
            client_ca: None,
            client_is_optional: false,
        };
        let write = || {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(&files.certificate, made.cert.pem()).unwrap();
            std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        };
        write();
        let read = ReadCertificates::read(files.clone()).unwrap();
        let certificates = Certificates::new(read, Clock::system());
        let mut settings = certificates.settings();
        certificates.look();
        assert!(!settings.has_changed().unwrap(), "the files are as they were");
        let key = std::fs::read(&files.key).unwrap();
        std::fs::write(&files.key, "no key").unwrap();
        certificates.look();
        let refused = certificates.lock().refused.clone().unwrap();
        assert!(refused.starts_with("server.tls.key_file: "), "{refused}");
        certificates.look();
        assert_eq!(certificates.lock().refused.as_ref(), Some(&refused));
        assert!(!settings.has_changed().unwrap());
        // Put back as it was: there is nothing new, and nothing wrong any more.
        std::fs::write(&files.key, key).unwrap();
        certificates.look();
        assert_eq!(certificates.lock().refused, None);
        assert!(!settings.has_changed().unwrap());
        write();
        certificates.look();
        assert!(settings.has_changed().unwrap());
        settings.mark_unchanged();
        write();
        assert!(certificates.replace(ReadCertificates::read(files.clone()).unwrap()));
        assert!(settings.has_changed().unwrap());
        assert!(!certificates.replace(ReadCertificates::read(files).unwrap()), "as before");
    }
}
