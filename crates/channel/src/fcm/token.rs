//! The access token of one service account, for all threads.
//!
//! The first attempt that needs one asks for it; the rest waits for that one answer. At 80 % of its life one attempt asks for
//! the next, in the background, and all go on with the old one. When the endpoint fails, it is
//! asked again after a growing pause, and not by every message in the meantime.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow::{Backoff, Clock};
use http::HeaderValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::account::ServiceAccount;
use super::config::TokenUri;
use super::oauth::{self, AccessToken, TokenError};
use crate::timestamp;

/// A token younger than this that was never accepted is not too old: another would fare no better.
const YOUNG: Duration = Duration::from_mins(1);
/// How long no token is asked for after the account was refused: an operator has to correct it.
const REFUSED_PAUSE: Duration = Duration::from_mins(1);

/// Gets access tokens, and keeps the current one.
#[derive(Debug)]
pub(super) struct TokenSource {
    account: ServiceAccount,
    uri: TokenUri,
    tls: Arc<rustls::ClientConfig>,
    state: Mutex<TokenState>,
    /// Notified when an answer has come, or the question was given up.
    changed: Notify,
}

#[derive(Debug, Default)]
struct TokenState {
    current: Option<HeldToken>,
    /// When the last token ends or ended, also if it is not used any more.
    ends_at: Option<Instant>,
    is_asking: bool,
    failures: u16,
    /// Not to be asked before, after failures, and the last of them.
    pause: Option<(Instant, TokenError)>,
}

#[derive(Debug)]
struct HeldToken {
    authorization: HeaderValue,
    /// FCM has taken a message with it, so the account is good.
    is_accepted: bool,
    since: Instant,
    renew_at: Instant,
    good_until: Instant,
}

/// The next step of an attempt that needs a token.
#[derive(Debug)]
enum TokenStep {
    Use(HeaderValue),
    /// Use it, and ask for the next.
    UseAndRenew(HeaderValue),
    Ask,
    Wait,
    GiveUp(TokenError),
}

/// The right to ask: only one has it at a time.
#[derive(Debug)]
pub(super) struct RefreshPermit {
    source: Arc<TokenSource>,
}

// === impl TokenSource ===

impl TokenSource {
    /// Tokens of `account`, from `uri`.
    pub(super) fn new(
        account: ServiceAccount,
        uri: TokenUri,
        tls: Arc<rustls::ClientConfig>,
    ) -> Self {
        Self { account, uri, tls, state: Mutex::default(), changed: Notify::new() }
    }

    /// The `authorization` header, and, if it is time for the next token, the right to ask for it: to be
    /// [used](RefreshPermit::ask) in the background.
    ///
    /// # Errors
    /// When there is no token, and why.
    pub(super) async fn authorization(
        self: &Arc<Self>,
        clock: Clock,
        random: &mut fastrand::Rng,
    ) -> Result<(HeaderValue, Option<RefreshPermit>), TokenError> {
        loop {
            // Made before the look: from here on it hears `notify_waiters`, so an answer
            // between look and wait is not missed.
            let changed = self.changed.notified();
            match self.step(clock.monotonic()) {
                TokenStep::Use(authorization) => return Ok((authorization, None)),
                TokenStep::UseAndRenew(authorization) => {
                    return Ok((authorization, Some(self.asking())));
                }
                TokenStep::Ask => self.asking().ask(clock, random).await,
                TokenStep::Wait => changed.await,
                TokenStep::GiveUp(refused) => return Err(refused),
            }
        }
    }

    /// When the last token ends, or ended: by its lifetime, or when FCM did not accept it any more. `None` before the first.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.state().ends_at
    }

    /// FCM does not accept `authorization`. Says whether another token may be better: there is one, or this is not
    /// used any more.
    pub(super) fn rejected(&self, authorization: &HeaderValue, now: Instant) -> bool {
        let mut state = self.state();
        // Another attempt has given it up meanwhile: the next one is asked for anyway.
        let Some(held) = &state.current else { return true };
        if held.authorization != authorization {
            return true;
        }
        let is_over = held.is_accepted || now.saturating_duration_since(held.since) >= YOUNG;
        if is_over {
            state.current = None;
            state.ends_at = state.ends_at.map(|ends_at| ends_at.min(now));
        }
        is_over
    }

    /// FCM has taken a message with `authorization`. Says whether that is the current one.
    pub(super) fn accepted(&self, authorization: &HeaderValue) -> bool {
        let mut state = self.state();
        let held = state.current.as_mut().filter(|held| held.authorization == authorization);
        held.map(|held| held.is_accepted = true).is_some()
    }

    fn step(&self, now: Instant) -> TokenStep {
        let mut state = self.state();
        let is_paused = state.pause.as_ref().is_some_and(|(until, _)| now < *until);
        let may_ask = !state.is_asking && !is_paused;
        let step = match (&state.current, &state.pause) {
            // A token that is due for renewal goes on serving while the next one is asked
            // for, or must not be asked for yet.
            (Some(held), _) if now < held.renew_at || (now < held.good_until && !may_ask) => {
                return TokenStep::Use(held.authorization.clone());
            }
            (Some(held), _) if now < held.good_until => {
                TokenStep::UseAndRenew(held.authorization.clone())
            }
            _ if state.is_asking => return TokenStep::Wait,
            (_, Some((_, refused))) if is_paused => return TokenStep::GiveUp(refused.clone()),
            _ => TokenStep::Ask,
        };
        // Under the lock of the look, so that no other attempt is told to ask as well.
        state.is_asking = true;
        step
    }

    fn asking(self: &Arc<Self>) -> RefreshPermit {
        RefreshPermit { source: Arc::clone(self) }
    }

    fn take(
        &self,
        answer: Result<AccessToken, TokenError>,
        clock: Clock,
        random: &mut fastrand::Rng,
    ) {
        let now = clock.monotonic();
        let mut state = self.state();
        match answer {
            Ok(AccessToken { authorization, lifetime }) => {
                state.current = Some(HeldToken {
                    authorization,
                    is_accepted: false,
                    since: now,
                    renew_at: now + lifetime.mul_f64(0.8),
                    // The last twentieth is left out: a token must not end while a message with it is under way.
                    good_until: now + lifetime.mul_f64(0.95),
                });
                state.ends_at = Some(now + lifetime);
                (state.failures, state.pause) = (0, None);
            }
            Err(refused) => {
                state.failures = state.failures.saturating_add(1);
                let pause = match &refused {
                    TokenError::Account(message) => {
                        tracing::error!(%message, "FCM's service account is refused");
                        REFUSED_PAUSE
                    }
                    TokenError::ForNow(message) => {
                        tracing::warn!(%message, "no access token for FCM");
                        Backoff::CONNECT.delay(state.failures, None, random)
                    }
                };
                state.pause = Some((now + pause, refused));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, TokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RefreshPermit ===

impl RefreshPermit {
    /// Asks for a token.
    pub(super) async fn ask(self, clock: Clock, random: &mut fastrand::Rng) {
        let TokenSource { account, uri, tls, .. } = &*self.source;
        let answer = match account.assertion(&uri.text, timestamp(clock)) {
            Some(assertion) => oauth::exchange(uri, tls, &assertion).await,
            None => Err(TokenError::Account("the service account's key does not sign".to_owned())),
        };
        // Before the right to ask goes with `self`: those that wait look when it goes, and find the answer.
        self.source.take(answer, clock, random);
    }
}

impl Drop for RefreshPermit {
    /// Also when it was given up: the next may ask.
    fn drop(&mut self) {
        self.source.state().is_asking = false;
        // Behind the change: who is woken looks at it at once.
        self.source.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fcm::account::tests::account_json;
    use net::endpoint::Endpoint;
    use net::tls;

    fn source() -> Arc<TokenSource> {
        let account = ServiceAccount::read(&account_json(&serde_json::json!({}))).unwrap();
        let text = "https://127.0.0.1:1/token";
        let uri = TokenUri { text: text.to_owned(), endpoint: Endpoint::parse(text).unwrap() };
        Arc::new(TokenSource::new(account, uri, tls::client(None, &[], None).unwrap()))
    }

    fn grant(source: &Arc<TokenSource>, token: &'static str, clock: Clock) {
        let authorization = HeaderValue::from_static(token);
        let granted = AccessToken { authorization, lifetime: Duration::from_secs(1000) };
        source.take(Ok(granted), clock, &mut fastrand::Rng::with_seed(1));
    }

    fn fail(source: &Arc<TokenSource>, refused: TokenError, clock: Clock) {
        source.take(Err(refused), clock, &mut fastrand::Rng::with_seed(1));
    }

    #[tokio::test(start_paused = true)]
    async fn one_asks_and_the_others_wait() {
        let (source, clock) = (source(), Clock::starting_at(Duration::ZERO));
        let now = clock.monotonic();
        assert!(matches!(source.step(now), TokenStep::Ask));
        let asking = source.asking();
        assert!(matches!(source.step(now), TokenStep::Wait));
        let waiting = tokio::task::unconstrained(async {
            source.authorization(clock, &mut fastrand::Rng::with_seed(1)).await
        });
        let answering = async {
            tokio::task::yield_now().await;
            grant(&source, "a", clock);
            drop(asking);
        };
        let (found, ()) = tokio::join!(waiting, answering);
        assert_eq!(found.unwrap().0, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_was_given_up_is_asked_by_the_next() {
        let (source, clock) = (source(), Clock::starting_at(Duration::ZERO));
        assert!(matches!(source.step(clock.monotonic()), TokenStep::Ask));
        drop(source.asking());
        assert!(matches!(source.step(clock.monotonic()), TokenStep::Ask));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_renewed_by_one_at_80_percent_of_its_life_and_used_meanwhile() {
        let (source, clock) = (source(), Clock::starting_at(Duration::ZERO));
        grant(&source, "a", clock);
        let start = clock.monotonic();
        let at = |seconds| source.step(start + Duration::from_secs(seconds));
        assert!(matches!(at(799), TokenStep::Use(_)));
        assert!(matches!(at(800), TokenStep::UseAndRenew(_)));
        assert!(matches!(at(801), TokenStep::Use(_)), "one asks");
        assert!(matches!(at(949), TokenStep::Use(_)));
        assert!(matches!(at(950), TokenStep::Wait), "too close to its end");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_token_is_that_of_its_whole_life_and_is_known_when_it_is_past() {
        let (source, clock) = (source(), Clock::starting_at(Duration::ZERO));
        assert_eq!(source.ends_at(), None);
        let start = clock.monotonic();
        grant(&source, "a", clock);
        let end = start + Duration::from_secs(1000);
        assert_eq!(source.ends_at(), Some(end));
        tokio::time::advance(Duration::from_secs(1001)).await;
        fail(&source, TokenError::ForNow("x".to_owned()), clock);
        assert!(source.rejected(&HeaderValue::from_static("a"), clock.monotonic()));
        assert_eq!(source.ends_at(), Some(end), "it had ended before it was rejected");
        grant(&source, "b", clock);
        tokio::time::advance(YOUNG).await;
        assert!(source.rejected(&HeaderValue::from_static("b"), clock.monotonic()));
        assert_eq!(source.ends_at(), Some(clock.monotonic()), "it was rejected before its end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_to_all_until_it_is_time_to_ask_again() {
        let (source, clock) = (source(), Clock::starting_at(Duration::ZERO));
        let refused = TokenError::Account("status 401".to_owned());
        fail(&source, refused.clone(), clock);
        let told = source.authorization(clock, &mut fastrand::Rng::with_seed(1)).await;
        assert_eq!(told.unwrap_err(), refused);
        tokio::time::advance(REFUSED_PAUSE).await;
        assert!(matches!(source.step(clock.monotonic()), TokenStep::Ask));
        drop(source.asking());
        for failures in 0..20 {
            fail(&source, TokenError::ForNow("x".to_owned()), clock);
            let (until, _) = source.state().pause.clone().unwrap();
            let pause = until - clock.monotonic();
            assert!(pause <= Duration::from_secs(30), "{pause:?} after {failures}");
        }
        grant(&source, "a", clock);
        assert!(matches!(source.step(clock.monotonic()), TokenStep::Use(_)));
        fail(&source, TokenError::ForNow("x".to_owned()), clock);
        assert!(matches!(source.step(clock.monotonic()), TokenStep::Use(_)), "the old one is good");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejected_token_is_replaced_once_and_not_when_it_is_young() {
        let (source, clock) = (source(), Clock::starting_at(Duration::ZERO));
        let (a, b) = (HeaderValue::from_static("a"), HeaderValue::from_static("b"));
        grant(&source, "a", clock);
        assert!(!source.rejected(&a, clock.monotonic()), "a new one would fare no better");
        tokio::time::advance(YOUNG).await;
        assert!(source.rejected(&a, clock.monotonic()));
        assert!(source.rejected(&a, clock.monotonic()), "none is held");
        grant(&source, "b", clock);
        assert!(source.rejected(&a, clock.monotonic()), "there is another already");
        assert!(!source.rejected(&b, clock.monotonic()));
        source.accepted(&a);
        assert!(!source.rejected(&b, clock.monotonic()), "another one was accepted");
        source.accepted(&b);
        assert!(source.rejected(&b, clock.monotonic()), "the account is good");
    }
}
