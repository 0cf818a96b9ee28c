//! Two sender threads before one destination.

use std::collections::BTreeSet;

use notification::{Account, Guarantee};

use crate::MS;
use crate::rig::{Rig, on_one_thread};
use crate::script::Script;

/// The sender threads of all attempts of 20,000 notifications to one destination, in order.
fn threads_of_attempts(script: Script) -> Vec<usize> {
    on_one_thread(async || {
        let rig = Rig { threads: 2, ..Rig::new(script) };
        let running = rig.start();
        let draft = |number: usize| rig.draft(&number.to_string(), Guarantee::AtMostOnce);
        rig.accept_drafts((0..20_000).map(draft).collect()).await;
        let account = rig.drained().await;
        let all = Account { accepted: 20_000, delivered: 20_000, ..Account::default() };
        assert_eq!(account, all);
        assert_eq!(rig.script.attempts().into_iter().collect::<BTreeSet<_>>().len(), 20_000);
        running.stop().await;
        rig.script.attempted_by()
    })
}

#[test]
fn a_destination_whose_learned_limit_is_new_is_sent_to_by_one_thread() {
    let threads = threads_of_attempts(Script::learned(300 * MS));
    assert_eq!(threads.len(), 20_000, "each once");
    let of_the_second = threads.iter().position(|thread| *thread != threads[0]).unwrap();
    assert!((500..5_000).contains(&of_the_second), "{of_the_second}");
}

#[test]
fn a_destination_with_a_fixed_limit_is_sent_to_by_all_threads() {
    let threads = threads_of_attempts(Script::new(300 * MS, 400));
    assert_eq!(threads.len(), 20_000, "each once");
    let of_the_second = threads.iter().position(|thread| *thread != threads[0]).unwrap();
    assert!(of_the_second < 400, "{of_the_second}");
}
