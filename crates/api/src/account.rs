//! `GET /v1/account`: where all notifications of a tenant stand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use notification::{Account, Name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ApiState;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::problem_code::ProblemCode;
use crate::scope::tenant_alone;
use crate::view::show;

/// The account of a tenant.
#[derive(Debug, JsonSchema, Serialize, Deserialize)]
pub struct TenantAccount {
    /// Whose notifications these are.
    #[schemars(with = "notification::Name")]
    pub tenant: String,
    /// How many were accepted, and how many are in each state.
    #[serde(flatten)]
    pub account: Account,
}

/// Time after which a caller should ask again while accounts are assigned.
const ASK_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// The caller's; an operator may name another tenant.
pub(crate) async fn read(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let tenant = tenant_alone(&uri, &caller)?;
    let totals = shared.reads_of(&caller).tenant_totals(tenant.clone()).await?;
    let account = totals.ok_or_else(unknown)?;
    Ok(Json(TenantAccount::new(&tenant, account)).into_response())
}

/// No tenant has an account as long as something is counted without its tenant.
pub(crate) fn unknown() -> Problem {
    let detail = "an older version has counted for all tenants together: the engine counts anew what each of them has";
    Problem::new(ProblemCode::AccountUnknown, detail).retry_after(ASK_AGAIN_AFTER)
}

// === impl TenantAccount ===

impl TenantAccount {
    /// The account of `tenant`.
    pub fn new(tenant: &Name, account: Account) -> Self {
        Self { tenant: show(tenant), account }
    }

    /// The accounts of `tenants`, by name.
    pub fn of_all(tenants: &BTreeMap<Name, Account>) -> Vec<Self> {
        tenants.iter().map(|(tenant, account)| Self::new(tenant, *account)).collect()
    }
}
