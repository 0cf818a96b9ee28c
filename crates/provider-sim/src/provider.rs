//! Decides about a complete request, and writes it into the books.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use crate::apns::Apns;
use crate::clock;
use crate::exchange::{Finding, NEVER_US, Request, SimAnswer, SimReply, SimVerdict, Trouble};
use crate::faults::{CommonFaults, Dice, SimFault, is_dead};
use crate::fcm::Fcm;
use crate::journal::{Journal, JournalChannel, JournalRecord, JournalStatus};
use crate::options::SimulatorOptions;
use crate::webhook::Webhook;
use crate::webpush::WebPush;

/// One provider in one serving thread.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) options: Arc<SimulatorOptions>,
    pub(crate) journal: Rc<Journal>,
    protocol: SimProtocol,
    dice: RefCell<Dice>,
    common: Arc<CommonFaults>,
}

/// The protocol a provider speaks above HTTP.
#[derive(Debug)]
pub(crate) enum SimProtocol {
    Apns(Apns),
    Webhook(Webhook),
    WebPush(WebPush),
    Fcm(Fcm),
}

impl Provider {
    pub(crate) fn new(
        options: Arc<SimulatorOptions>,
        journal: Rc<Journal>,
        protocol: SimProtocol,
        dice: Dice,
        common: Arc<CommonFaults>,
    ) -> Self {
        Self { options, journal, protocol, dice: RefCell::new(dice), common }
    }

    pub(crate) const fn is_apns(&self) -> bool {
        matches!(self.protocol, SimProtocol::Apns(_))
    }

    /// Longest body that is read; a longer one is [`crate::exchange::SimContent::TooLong`].
    pub(crate) const fn content_bytes_max(&self) -> usize {
        match self.protocol {
            SimProtocol::Apns(_) => Apns::CONTENT_BYTES_MAX,
            SimProtocol::Webhook(_) => Webhook::CONTENT_BYTES_MAX,
            SimProtocol::WebPush(_) => WebPush::CONTENT_BYTES_MAX,
            SimProtocol::Fcm(_) => Fcm::CONTENT_BYTES_MAX,
        }
    }

    /// Decides about a complete request and adds its record to the journal.
    pub(crate) fn receive(&self, request: &Request<'_>) -> SimVerdict {
        let now_us = clock::unix_us();
        let finding = self.examine(request, now_us);
        let faults = &self.options.faults;
        // Before anything else, since it counts every request, and not only good ones.
        let is_out = self.common.outage.strikes(now_us);
        let is_silent = is_out && faults.outage_silent
            || faults.silent_to.as_deref() == Some(finding.recipient);
        let mut reply = if is_out && !faults.outage_silent {
            self.trouble(Trouble::Unavailable, now_us)
        } else {
            self.decide(&finding, now_us)
        };
        // Before the record, which has the identifier that the answer carries.
        let made_up_id = self.complete(&mut reply, request);
        let id = made_up_id.as_deref().unwrap_or(&finding.id);
        let record = self.record(now_us, id, finding.recipient, &reply);
        let due_us = match self.dice.borrow_mut().latency_us() {
            // Drawn all the same, so that silence does not change what the next requests meet.
            _ if is_silent => NEVER_US,
            0 => 0,
            latency_us => self.common.capacity.answered_us(now_us, latency_us),
        };
        SimVerdict { reply, record, due_us, authenticated: finding.authenticated }
    }

    /// Records a request that is left unprocessed, and returns the number of its record.
    pub(crate) fn refuse(&self, request: &Request<'_>) -> u64 {
        let now_us = clock::unix_us();
        // For the identifier and the recipient in the record; what it finds wrong is not answered.
        let finding = self.examine(request, now_us);
        self.record(now_us, &finding.id, finding.recipient, &SimReply::Refuse)
    }

    fn examine<'a>(&self, request: &Request<'a>, now_us: u64) -> Finding<'a> {
        match &self.protocol {
            SimProtocol::Apns(apns) => apns.examine(request, now_us),
            SimProtocol::Webhook(webhook) => webhook.examine(request, now_us),
            SimProtocol::WebPush(webpush) => webpush.examine(request, now_us),
            SimProtocol::Fcm(fcm) => fcm.examine(request, now_us),
        }
    }

    fn decide(&self, finding: &Finding<'_>, now_us: u64) -> SimReply {
        // Before the dice: they fall for good requests only, so bad ones do not change what those meet.
        if let Some(rejection) = &finding.rejection {
            return SimReply::Answer(Box::new(rejection.clone()));
        }
        let dead_tokens = self.options.faults.dead_tokens;
        if dead_tokens > 0.0 && is_dead(finding.recipient, dead_tokens) {
            return self.trouble(Trouble::Gone, now_us);
        }
        if !self.common.rate_limit.admits(now_us) {
            return self.trouble(Trouble::Throttled, now_us);
        }
        match self.dice.borrow_mut().fault() {
            None => SimReply::Answer(Box::new(self.accepted(&finding.id))),
            Some(SimFault::Refuse) => SimReply::Refuse,
            Some(SimFault::Disconnect) => SimReply::Disconnect,
            Some(SimFault::Drop) => SimReply::Silence,
            Some(SimFault::Throttle) => self.trouble(Trouble::Throttled, now_us),
            Some(SimFault::InternalError) => self.trouble(Trouble::InternalError, now_us),
            Some(SimFault::Unavailable) => self.trouble(Trouble::Unavailable, now_us),
        }
    }

    fn accepted(&self, id: &str) -> SimAnswer {
        match &self.protocol {
            SimProtocol::Apns(_) | SimProtocol::Webhook(_) => {
                SimAnswer::new(StatusCode::OK, bytes::Bytes::new())
            }
            SimProtocol::WebPush(_) => WebPush::accepted(id),
            SimProtocol::Fcm(_) => Fcm::accepted(id),
        }
    }

    fn trouble(&self, trouble: Trouble, now_us: u64) -> SimReply {
        let mut answer = match self.protocol {
            SimProtocol::Apns(_) => Apns::trouble(trouble, now_us),
            SimProtocol::Webhook(_) => Webhook::trouble(trouble),
            SimProtocol::WebPush(_) => WebPush::trouble(trouble),
            SimProtocol::Fcm(_) => Fcm::trouble(trouble),
        };
        if matches!(trouble, Trouble::Throttled | Trouble::Unavailable) {
            answer.retry_after_seconds = Some(self.options.faults.retry_after);
        }
        SimReply::Answer(Box::new(answer))
    }

    /// Has an APNs answer carry the id of its request, or one made up for it, which is returned.
    fn complete(&self, reply: &mut SimReply, request: &Request<'_>) -> Option<String> {
        if !self.is_apns() {
            return None;
        }
        let given = request.headers.get("apns-id");
        let made_up = given.is_none().then(|| self.dice.borrow_mut().uuid());
        if let SimReply::Answer(answer) = reply {
            let id = made_up.as_deref().map(str::as_bytes).or(given);
            answer.apns_id = id.and_then(|id| HeaderValue::from_bytes(id).ok());
        }
        made_up
    }

    fn record(&self, received_us: u64, id: &str, recipient: &str, reply: &SimReply) -> u64 {
        let status = match reply {
            SimReply::Answer(answer) => JournalStatus::Answered(answer.status.as_u16()),
            SimReply::Silence | SimReply::Disconnect => JournalStatus::Drop,
            SimReply::Refuse => JournalStatus::Refuse,
        };
        let channel = match self.protocol {
            SimProtocol::Apns(_) => JournalChannel::Apns,
            SimProtocol::Webhook(_) => JournalChannel::Webhook,
            SimProtocol::WebPush(_) => JournalChannel::WebPush,
            SimProtocol::Fcm(_) => JournalChannel::Fcm,
        };
        self.journal.add(&JournalRecord { received_us, channel, status, id, recipient })
    }
}
