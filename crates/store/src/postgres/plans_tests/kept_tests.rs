//! Plans that a session keeps from the time when the tables were empty.

use std::collections::BTreeSet;

use flow::Tasks;
use testbed::{Database, PostgresOptions, PostgresServer};

use super::cases_tests::APART;
use super::growth_tests::state;
use super::{
    PostgresSession, ROWS, connect, excess, explain, faults, fill, find, prepare, run, statements,
};
use crate::Postgres;
use crate::postgres::Options;
use crate::postgres::connection::Connector;
use crate::postgres::growth::ASK_EVERY;
use crate::postgres::transaction::Transaction;
use crate::postgres::writer::PLANS;
use crate::statements::Statement;

/// An empty store on a server on which kept plans stay: an analysis drops them, and so does a session that falls behind with notices of
/// other databases.
async fn new_store() -> (PostgresServer, Database) {
    let options = PostgresOptions { settings: &[("autovacuum", "off")], tls: None };
    let server = PostgresServer::start_with(options).unwrap();
    let database = server.create_database().unwrap();
    let store = Postgres::open(Options::new(database.url()), flow::Clock::system()).await.unwrap();
    store.close().await;
    (server, database)
}

/// The planner assumes of a table without a page that all ways through it cost the same.
#[tokio::test]
async fn plans_that_were_made_for_empty_tables_are_forgotten_as_these_fill() {
    let (_server, database) = new_store().await;
    let mut tasks = Tasks::default();
    let client = connect(database.url(), &mut tasks).await;
    client.batch_execute("VACUUM").await.unwrap();
    let connector = Connector::new(database.url(), "plans", None).unwrap();
    let writer = connector.connect(None).await.unwrap();
    writer.client.batch_execute(PLANS).await.unwrap();
    let (mut state, _standing) = state();
    let all = statements();
    let all: Vec<&Statement> = all
        .iter()
        .filter(|it| !APART.contains(&it.file.as_str()))
        .filter(|it| PostgresSession::of(&it.file).contains(&PostgresSession::Writer))
        .collect();
    Transaction::begin(&writer, &mut state).await.unwrap().commit().await.unwrap();
    prepare(&writer.client, &all).await;
    fill(&client).await;
    let at_fault = async || {
        let plans = explain(&writer.client, &all).await;
        let all = plans.iter().flat_map(faults);
        all.filter(|fault| fault.starts_with("reads all of")).collect::<Vec<String>>()
    };
    assert!(at_fault().await.len() > 10);
    for _ in 0..ASK_EVERY {
        Transaction::begin(&writer, &mut state).await.unwrap().commit().await.unwrap();
    }
    let found = find((&writer.client, &all), "filled", &mut BTreeSet::new()).await;
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

/// The reason for the switches of writers: a plan that is made while the tables are new is kept.
#[tokio::test]
async fn plans_of_a_new_database_stay_good_with_the_switches_and_not_without() {
    let (_server, database) = new_store().await;
    let mut tasks = Tasks::default();
    let client = connect(database.url(), &mut tasks).await;
    let writer = PostgresSession::Writer.connect(database.url(), &mut tasks).await;
    let without = PostgresSession::Other.connect(database.url(), &mut tasks).await;
    let all = statements();
    let of_chunks =
        ["DELETE FROM chunk", "UPDATE chunk SET count", "SELECT lane.id, kept_through FROM unnest"];
    let joins: Vec<&Statement> =
        all.iter().filter(|it| of_chunks.iter().any(|of| it.sql.starts_with(of))).collect();
    prepare(&writer, &joins).await;
    prepare(&without, &joins).await;
    fill(&client).await;
    assert_eq!(run(&writer, &joins).await.iter().filter_map(excess).count(), 0);
    let plans = run(&without, &joins).await;
    let all_read = |(read, _): &(f64, String)| *read > f64::from(ROWS);
    assert_eq!(plans.iter().filter_map(excess).filter(all_read).count(), of_chunks.len());
}
