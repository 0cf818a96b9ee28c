//! `GET /v1/tenants`: the tenants that have anything, with their accounts.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use notification::limits;
use store::TenantPage;

use crate::ApiState;
use crate::account::{self, TenantAccount};
use crate::caller::Caller;
use crate::limits::LIST_SLICE;
use crate::problem::Problem;
use crate::query::Query;
use crate::view::{ListAnswer, show};

/// Parameters of the list.
pub(crate) const PARAMETERS: [&str; 2] = ["after", "limit"];

/// By name, from the running totals.
pub(crate) async fn list(
    State(shared): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::read(&uri, &PARAMETERS)?;
    let after = query.parse("after")?;
    let items_max = query.limit(LIST_SLICE, limits::LIST_ITEMS)?;
    let page = shared.reads_of(&caller).tenants(after, items_max).await?;
    let TenantPage { items, next } = page.ok_or_else(account::unknown)?;
    let items = items.into_iter().map(|(tenant, account)| TenantAccount::new(&tenant, account));
    Ok(Json(ListAnswer { items: items.collect(), next: next.map(show) }).into_response())
}
