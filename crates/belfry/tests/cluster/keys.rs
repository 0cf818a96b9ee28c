//! Keys that are made through one engine and used at another.

use std::process::Output;

use crate::support::{Cluster, Process, checked};

/// A command with a key.
fn run(cluster: &Cluster, process: &Process, key: &str, arguments: &[&str]) -> Output {
    let (name, rest) = arguments.split_first().unwrap();
    let mut command = cluster.command(process, name);
    command.args(rest).env("BELFRY_API_KEY", key).output().unwrap()
}

/// True if the key is good at `process`; false if it is not known.
fn is_good(cluster: &Cluster, process: &Process, key: &str) -> bool {
    let output = run(cluster, process, key, &["pause", "--channel", "nothing"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || told.contains("the API key is not known"), "{told}");
    output.status.success()
}

#[test]
fn a_key_is_good_in_every_engine_from_its_answer_on_and_no_more_when_it_is_revoked() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let ops = api::generate().unwrap();
    let scopes = r#"["send", "read", "cancel", "suppress", "operate", "metrics"]"#;
    let table = format!(
        r#"[{{name = "ops", tenant = "default", sha256 = "{}", scopes = {scopes}}}]"#,
        api::hash(&ops)
    );
    let cluster = Cluster::new(database.url(), 1, &[]).with("BELFRY__SERVER__KEYS", table);
    let (one, two) = (cluster.start("serve", "one"), cluster.start("serve", "two"));
    let by_one = |arguments: &[&str]| {
        let output = run(&cluster, &one, &ops, arguments);
        // Every process is known to go by it: nothing is said of one that was not heard of.
        assert!(!String::from_utf8_lossy(&output.stderr).contains("not heard of"), "{output:?}");
        checked(&output).trim().to_owned()
    };
    for round in 0..3 {
        let first = by_one(&["keys", "add", "shop", "--tenant", "shop", "--scopes", "cancel"]);
        assert!(is_good(&cluster, &two, &first), "{round}");
        let second = by_one(&["keys", "rotate", "shop"]);
        assert!(is_good(&cluster, &two, &first) && is_good(&cluster, &two, &second), "{round}");
        assert_eq!(by_one(&["keys", "revoke", "shop"]), "revoked");
        assert!(!is_good(&cluster, &two, &first) && !is_good(&cluster, &two, &second), "{round}");
    }
    // A key outlives the engines that made it.
    let key = by_one(&["keys", "add", "shop", "--tenant", "shop", "--scopes", "cancel"]);
    one.kill();
    two.kill();
    let three = cluster.start("serve", "three");
    assert!(is_good(&cluster, &three, &key));
    let listed = checked(&run(&cluster, &three, &ops, &["keys", "list"]));
    assert!(listed.contains("shop of shop: cancel (store, made 20"), "{listed}");
    // So does the trail of what was done: three rounds of three changes and one more, and in each as many calls with a key that was good.
    let acts = checked(&run(&cluster, &three, &ops, &["acts", "--key", "ops", "--limit", "99"]));
    let lines: Vec<&str> = acts.lines().collect();
    assert_eq!(lines.len(), 10, "{acts}");
    assert!(lines[0].contains(" ops of default for shop: POST /v1/keys: 201 {"), "{acts}");
    assert!(
        lines[1].ends_with(r#": DELETE /v1/keys/shop: 200 {"revoked":true,"everywhere":true}"#),
        "{acts}"
    );
    let of_shop = checked(&run(
        &cluster,
        &three,
        &ops,
        &["acts", "--tenant", "shop", "--limit", "99", "--json"],
    ));
    assert_eq!(of_shop.matches(r#""key":"shop""#).count(), 10, "{of_shop}");
    three.stop();
    // Without a configured key the stored ones would count for nothing, and every caller for an operator.
    let open = Cluster::new(database.url(), 1, &[]);
    let mut refused = open.start_unready("serve", "open", "127.0.0.1:0");
    assert_eq!(refused.ended(), 1);
    assert!(refused.said().contains("server.keys: 1 API keys are stored"), "{}", refused.said());
}
