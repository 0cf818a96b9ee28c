//! Each alert of `packaging/prometheus` is fired by a fault that is made: real processes are brought into it, their metrics are read
//! before, during and after it, and promtool judges these by the rules as they are shipped.
//!
//! A scenario names the alerts that its faults fire, and ends each phase with those that must be firing then: all of them, and no
//! others. The metrics are those of the processes, number by number. Made up is the time between two scrapes alone, on a [`Timeline`]: a
//! rule that waits for an hour need not be waited for.
#![cfg(test)]

mod alone;
mod cluster;
mod process;
mod timeline;

use std::collections::BTreeSet;

use timeline::RULES;

/// The alerts that a scenario fires.
const FIRED: [&[&str]; 2] = [alone::ALERTS, cluster::ALERTS];

#[test]
fn every_alert_that_is_shipped_has_a_fault_in_a_scenario() {
    let rules = std::fs::read_to_string(RULES).unwrap();
    let shipped = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let shipped: BTreeSet<&str> = shipped.collect();
    let fired: BTreeSet<&str> = FIRED.into_iter().flatten().copied().collect();
    assert!(shipped.len() > 10, "{rules}");
    assert_eq!(shipped, fired);
}
