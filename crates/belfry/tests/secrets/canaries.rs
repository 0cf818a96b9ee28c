//! Secrets stay secret: a canary wherever one may stand, each of them in use, and a look for them in everything that comes
//! out.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use provider_sim::journal::JournalChannel;

use crate::support::{Engine, Workspace, eventually};
use crate::world::{
    ACCESS_TOKEN, API_KEY_OF_ENDPOINT, BEARER, OTHER_PASSWORD, OTHER_WEBHOOK_SECRET, PASSWORD,
    World, canary_of, pem,
};

/// The one file that has a secret of ours: Apple's token, which is good for an hour. It is for its owner only.
fn kept_token(world: &World) -> String {
    let state = world.workspace.path("data/state");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    let file = state.join("apns-TEAM012345-ABCDE12345.token");
    assert_eq!(mode(&file), 0o600);
    let token = fs::read_to_string(file).unwrap();
    token.trim().trim_start_matches("bearer ").to_owned()
}

#[test]
fn no_secret_is_seen_in_what_comes_out() {
    let mut world = World::new();
    let engine = world.workspace.start();
    let key = world.api_key.clone();
    for notification in world.notifications() {
        let answer = world.workspace.call(
            &engine,
            &key,
            "POST /v1/notifications",
            &notification.to_string(),
        );
        assert!(answer.starts_with("HTTP/1.1 201"), "{notification}: {answer}");
    }
    let count = world.notifications().len();
    eventually("everything is attempted", || {
        world.workspace.get(&["log", "--json"]).lines().count() >= count
    });

    // Each was in use.
    let used = [
        (JournalChannel::Apns, 200),
        (JournalChannel::Webhook, 200),
        (JournalChannel::WebPush, 201),
        (JournalChannel::Smtp, 250),
    ];
    for (channel, status) in used {
        assert!(
            world.answered(channel, status) > 0,
            "{channel:?} {status}: {}",
            world.workspace.read("log")
        );
    }
    assert_eq!(world.answered(JournalChannel::Fcm, 200), 2, "an access token, and a message");
    assert_eq!(
        world.answered(JournalChannel::Apns, 403),
        1,
        "the certificate, which is not known there"
    );
    let heard = world.parrot.heard();
    assert!(heard.contains(BEARER) && heard.contains(API_KEY_OF_ENDPOINT), "{heard}");
    let heard = world.mail_parrot.heard();
    let login = |line: &&str| line.starts_with("AUTH ");
    let logins: Vec<String> = heard.lines().filter(login).map(decoded).collect();
    assert!(logins.iter().any(|login| login.contains(OTHER_PASSWORD)), "{heard}");
    assert!(logins.iter().any(|login| login.contains(ACCESS_TOKEN)), "{heard}");
    assert!(heard.contains("DKIM-Signature:"), "{heard}");
    let log = world.workspace.get(&["log", "--json"]);
    assert!(log.matches("[hidden]").count() >= 3, "the parrots' words are kept: {log}");
    let token = kept_token(&world);
    assert_eq!(token.split('.').count(), 3);
    world.canaries.push(token);

    world.ask(&engine);
    world.make_keys(&engine);
    reload_in_vain(&mut world, &engine);
    world.look();
    drop(engine);
    world.look();
}

/// The credentials in a line `AUTH MECHANISM BASE64`.
fn decoded(line: &str) -> String {
    let word = line.split_whitespace().nth(2).unwrap_or_default();
    String::from_utf8_lossy(&BASE64_STANDARD.decode(word).unwrap_or_default()).into_owned()
}

/// Has the engine read configurations that are wrong where a secret stands.
fn reload_in_vain(world: &mut World, engine: &Engine) {
    let config = world.config.clone();
    let open = format!("whsec_{OTHER_WEBHOOK_SECRET}");
    let one_line = canary_of(&pem());
    world.canaries.push(one_line.clone());
    world.canaries.push(format!("{:?}", one_line.as_bytes()).trim_matches(['[', ']']).to_owned());
    let broken_pem = format!("-----BEGIN PRIVATE KEY-----{one_line}-----END PRIVATE KEY-----");
    let wrong = [
        config.replace(&format!("\"{open}\""), &format!("{{ a = \"{open}\" }}")),
        config.replace(&open, OTHER_WEBHOOK_SECRET),
        config.replace("sealed:v2:hooks:webhook.secrets:", "sealed:v2:hooks:webhook.secrets:A"),
        config.replace(
            &format!("password = \"{OTHER_PASSWORD}\""),
            &format!("password = [\"{OTHER_PASSWORD}\"]"),
        ),
        config.replace(
            &format!("\"{API_KEY_OF_ENDPOINT}\""),
            &format!("\"{API_KEY_OF_ENDPOINT}\\n\""),
        ),
        config.replace("key_file = \"dkim.sealed\"", &format!("key = \"{broken_pem}\"")),
        config.replace("key_file = \"vapid.sealed\"", &format!("key = \"{broken_pem}\"")),
        config.replace(
            "certificate_file = \"client.pem\"",
            &format!("certificate = \"{broken_pem}\""),
        ),
        config.replace(
            "service_account_file = \"account.sealed\"",
            &format!("service_account = \"{broken_pem}\""),
        ),
        format!("{config}\nkey = {OTHER_WEBHOOK_SECRET}"),
        format!("{config}\n[store]\nurl = \"mysql://me:{PASSWORD}@db/x\"\n"),
    ];
    for text in wrong {
        assert_ne!(text, config);
        world.workspace.write("belfry.toml", &text);
        let said = world.workspace.reload(engine);
        assert!(said.contains("not reloaded"), "{said}");
        assert_eq!(world.workspace.run(&["check-config"]).status.code(), Some(78));
    }
    // The master key from the environment, for those who come after.
    let master_key = world.workspace.read("master.key").trim_end().to_owned();
    let without = config.replace("key_file = \"master.key\"", "");
    world.workspace.write("belfry.toml", &without);
    assert_eq!(world.workspace.run(&["check-config"]).status.code(), Some(78));
    world.workspace.environment.push(("BELFRY_MASTER_KEY", format!("{master_key}x")));
    assert_eq!(world.workspace.run(&["check-config"]).status.code(), Some(78));
    world.workspace.environment = vec![("BELFRY_MASTER_KEY", master_key)];
    world.workspace.get(&["check-config"]);
    let second = without.replace("[log]", "[store]\ndirectory = \"other\"\n[log]");
    world.workspace.write("belfry.toml", &second);
    let engine = world.workspace.start();
    assert!(world.workspace.reload(&engine).contains("reloaded: what is sent"));
    world.workspace.write("belfry.toml", &config);
}

#[test]
fn the_password_of_a_store_and_a_queue_is_seen_nowhere() {
    let database = testbed::postgres::shared().unwrap().create().unwrap();
    let queue = testbed::nats::shared_url().unwrap();
    let password = |url: &str| {
        let (user, _) = url.split_once('@').unwrap();
        user.rsplit_once(':').unwrap().1.to_owned()
    };
    let (store_password, queue_password) = (password(database.url()), password(&queue));
    let mut workspace = Workspace::new();
    workspace.get(&["credential", "key", "master.key"]);
    let sealed = workspace.seal("store", "store.password", &store_password);
    let without = database.url().replace(&format!(":{store_password}@"), "@");
    let prefix = testbed::unique_prefix();
    workspace.write(
        "belfry.toml",
        &format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[log]\nlevel = \"trace\"\n[credentials]\nkey_file = \"master.key\"\n\
             [store]\nurl = \"{without}\"\npassword = \"{sealed}\"\n[queue]\nurl = \"{queue}\"\nprefix = \"{prefix}\"\n\
             [channels.rehearsal]\nkind = \"dry-run\"\n"
        ),
    );
    // Both ask for the password, so a client that gets here has given it.
    let engine = workspace.start();
    let body = r#"{"channel":"rehearsal","to":"somebody","content":{}}"#;
    workspace.call(&engine, "", "POST /v1/notifications", body);
    eventually("it is delivered", || workspace.get(&["log", "--json"]).lines().count() == 1);
    workspace.call(&engine, "", "GET /v1/status", "");
    workspace.call(&engine, "", "GET /metrics", "");
    workspace.get(&["check-config"]);
    workspace.get(&["status", "--json", "--store", &without]);
    workspace.run(&["status", "--json", "--store", database.url()]);
    workspace.run(&["status", "--store", &database.url().replace("127.0.0.1", ":bad:")]);
    workspace.run(&["produce", "--queue", &queue.replace("nats", "http")]);
    let wrong = format!("postgres://me:{store_password}@127.0.0.1:1/x");
    workspace.run(&["audit", "--store", &wrong]);
    let texts = [workspace.read("log"), workspace.printed.clone()];
    for text in texts {
        for canary in [&store_password, &queue_password] {
            assert!(!text.contains(canary.as_str()), "{canary}: {text}");
        }
        assert!(!text.contains(&BASE64_URL_SAFE_NO_PAD.encode(&store_password)), "{text}");
    }
}
