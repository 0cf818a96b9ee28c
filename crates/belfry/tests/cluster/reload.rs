//! Reloads in a cluster, whose processes have a configuration each.

use crate::support::{Cluster, Process, checked};

#[test]
fn a_reload_is_of_the_process_that_is_asked_and_says_which_that_is() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let broker = testbed::nats::shared_url().unwrap();
    let cluster = Cluster::new(database.url(), 1, &[]).with_queue(&broker);
    let (one, two) = (cluster.start("produce", "one"), cluster.start("consume", "two"));
    let reload = |process: &Process| {
        let told = checked(&cluster.command(process, "reload").output().unwrap());
        let (name, rest) = told.trim_end().split_once(" reloaded: ").unwrap();
        (name.to_owned(), rest.to_owned())
    };
    let add = |name: &str| {
        let config = cluster.directory.path().join(name);
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{text}\n[channels.more]\nkind = \"dry-run\"\n")).unwrap();
    };
    add("two.toml");
    let ((producer, of_producer), (consumer, of_consumer)) = (reload(&one), reload(&two));
    assert_eq!((&*of_producer, &*of_consumer), ("nothing has changed", "channels.more (new)"));
    let status = cluster.status(&one);
    let workers = status["cluster"]["workers"].as_array().unwrap();
    let named = |name: &str| workers.iter().find(|worker| worker["name"] == name).unwrap();
    assert_eq!(named(&producer)["role"], "produce", "{status}");
    assert_eq!(named(&consumer)["role"], "consume", "{status}");
    add("one.toml");
    assert_eq!(reload(&one), (producer, "channels.more (new)".to_owned()));
}
