//! Quotas that are changed while an engine runs.

use flow::Clock;

use super::{Deployment, EngineWorld, settled};
use crate::config::TenantConfig;
use crate::serve::Role;
use crate::serve::engine::Engine;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_gives_a_tenant_another_quota_for_what_waits() {
    let world = EngineWorld::of(Deployment::OneMachine).await;
    let mut limited = world.config();
    // One every 12 s: all of them would take six minutes.
    let tenant = TenantConfig { messages_per_minute: 6, ..TenantConfig::default() };
    limited.tenants.insert("default".parse().unwrap(), tenant);
    let mut engine = Engine::start(Role::Both, &limited, Clock::system()).await.unwrap();
    world.send(&engine, 30, "at_least_once", None).await;
    world.arrived(1).await;
    assert!(world.arrivals().len() < 30);
    let changes = engine.reload(world.config()).await.unwrap();
    assert_eq!(changes.changed, ["tenants"]);
    assert_eq!(settled(&engine, 30).await.delivered, 30);
}
