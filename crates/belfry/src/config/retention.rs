//! `[retention]`: how long what is settled is kept.

use std::collections::BTreeMap;

use notification::{Name, State};
use serde::Deserialize;
use store::{Lifetimes, Retention, TenantRetention};

use super::lifetimes::{Lifetime, LifetimesConfig};
use super::problem::Mistake;
use super::tenants::TenantConfig;

/// `[retention]`: how long what is settled is kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetentionConfig {
    /// Contents, from the end of a notification on. Default `7d`.
    contents: Lifetime,
    /// Recipients, likewise. Default `30d`.
    recipients: Lifetime,
    /// Outcomes, likewise: all that is left of it. Default `90d`.
    outcomes: Lifetime,
    /// Idempotency keys, from their first use on. Default `30d`.
    idempotency_keys: Lifetime,
    /// Changes of the suppression list. Default `90d`.
    suppression_events: Lifetime,
    /// Rejected rows of the outbox. Default `30d`.
    outbox_rejects: Lifetime,
    /// Acts in the trail. Default `400d`.
    acts: Lifetime,
    /// Lifetimes of what ended in some state, by its name. None by default.
    states: BTreeMap<String, LifetimesConfig>,
}

// === impl RetentionConfig ===

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            contents: Lifetime::days(7),
            recipients: Lifetime::days(30),
            outcomes: Lifetime::days(90),
            idempotency_keys: Lifetime::days(30),
            suppression_events: Lifetime::days(90),
            outbox_rejects: Lifetime::days(30),
            acts: Lifetime::days(400),
            states: BTreeMap::new(),
        }
    }
}

impl RetentionConfig {
    /// The lifetimes that the store goes by.
    pub(crate) fn retention(&self, tenants: &BTreeMap<Name, TenantConfig>) -> Retention {
        let of_all = Lifetimes {
            content: self.contents.0,
            recipient: self.recipients.0,
            outcome: self.outcomes.0,
        };
        let of_tenant = |own: LifetimesConfig| {
            let of_state = |(state, lifetimes): (&String, &LifetimesConfig)| {
                Some((state.parse::<State>().ok()?, lifetimes.over(own.over(of_all))))
            };
            let by_state = self.states.iter().filter_map(of_state).collect();
            TenantRetention { lifetimes: own.over(of_all), by_state }
        };
        let own = |(name, tenant): (&Name, &TenantConfig)| {
            tenant.retention.map(|own| (name.clone(), of_tenant(own)))
        };
        Retention {
            default: of_tenant(LifetimesConfig::default()),
            tenants: tenants.iter().filter_map(own).collect(),
            idempotency_keys: self.idempotency_keys.0,
            suppression_events: self.suppression_events.0,
            outbox_rejects: self.outbox_rejects.0,
            acts: self.acts.0,
        }
    }

    pub(super) fn check(&self, tenants: &BTreeMap<Name, TenantConfig>) -> Vec<Mistake> {
        let mut problems = Vec::new();
        for state in self.states.keys() {
            if !state.parse::<State>().is_ok_and(State::is_terminal) {
                let ends: Vec<&str> =
                    State::ALL.iter().filter(|it| it.is_terminal()).map(|it| it.as_str()).collect();
                let message = format!("is none of {}", ends.join(", "));
                problems.push(Mistake::new(format!("retention.states.{state}"), message));
            }
        }
        let retention = self.retention(tenants);
        let message =
            "contents may not be kept longer than recipients, nor these longer than outcomes";
        let mut check = |path: String, of: &TenantRetention| {
            if !of.lifetimes.are_in_order() {
                problems.push(Mistake::new(path.clone(), message));
            }
            for (state, lifetimes) in &of.by_state {
                if !lifetimes.are_in_order() {
                    let message = format!("of those that are {state}, {message}");
                    problems.push(Mistake::new(path.clone(), message));
                }
            }
        };
        check("retention".to_owned(), &retention.default);
        for (name, of) in &retention.tenants {
            check(format!("tenants.{name}.retention"), of);
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> Result<RetentionConfig, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn lifetimes_are_spans_days_or_for_ever() {
        let config = read("contents = '0s'\nrecipients = '36h'\noutcomes = 'forever'").unwrap();
        let lifetimes = config.retention(&BTreeMap::new()).default.lifetimes;
        let recipient = Some(Duration::from_hours(36));
        let expect = Lifetimes { content: Some(Duration::ZERO), recipient, outcome: None };
        assert_eq!(lifetimes, expect);
        assert_eq!(
            read("contents = '2 weeks ago'"),
            Err("\"2 weeks ago\" is neither a span of time such as 12h or 30d nor `forever`".into())
        );
    }

    #[test]
    fn a_state_differs_from_its_tenant_and_a_tenant_from_all() {
        let config = read("states.dead = { contents = '20d' }").unwrap();
        let shop = LifetimesConfig { outcomes: Some(Lifetime::days(40)), ..Default::default() };
        let shop = TenantConfig { retention: Some(shop), ..TenantConfig::default() };
        let tenants = BTreeMap::from([("shop".parse().unwrap(), shop)]);
        assert_eq!(config.check(&tenants).len(), 0);
        let retention = config.retention(&tenants);
        let of_shop = retention.of(&"shop".parse().unwrap());
        let days = |days: u64| Some(Duration::from_hours(24 * days));
        let dead = Lifetimes { content: days(20), recipient: days(30), outcome: days(40) };
        assert_eq!(of_shop.lifetimes(State::Dead), &dead);
        assert_eq!(of_shop.lifetimes(State::Delivered).content, days(7));
        assert_eq!(retention.default.lifetimes(State::Dead).outcome, days(90));
    }

    #[test]
    fn what_goes_first_may_not_stay_longest() {
        let config = read("contents = '31d'\nstates.sent = { }").unwrap();
        let said: Vec<String> =
            config.check(&BTreeMap::new()).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "retention.states.sent: is none of delivered, refused, expired, cancelled, suppressed, in_doubt, dead",
                "retention: contents may not be kept longer than recipients, nor these longer than outcomes",
            ]
        );
    }
}
