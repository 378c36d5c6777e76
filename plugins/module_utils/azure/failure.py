# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Azure's errors mean and what to do about them. No I/O. Private."""

from __future__ import annotations

import re
import typing as t

_PREFLIGHT = "azure_compute_preflight tells the numbers."
# The first that is found in a text explains it, so what hides in details comes before what wraps it.
REMEDIES: tuple[tuple[str, str], ...] = (
    ("AADSTS7000222", "The client secret has expired: make a new one and set AZURE_SECRET."),
    ("AADSTS7000215", "The client secret is wrong: AZURE_SECRET wants the secret's value, not its identifier."),
    ("AADSTS700016", "The tenant does not know the application: check AZURE_CLIENT_ID and AZURE_TENANT."),
    ("AADSTS90002", "There is no such tenant: check AZURE_TENANT."),
    ("invalid_client", "The login was refused: check AZURE_TENANT, AZURE_CLIENT_ID and AZURE_SECRET."),
    ("InvalidAuthenticationToken", "Azure does not take the token: check tenant, cloud and this machine's clock."),
    ("SubscriptionNotFound", "Check AZURE_SUBSCRIPTION_ID, and that the identity has a role in that subscription."),
    ("LinkedAuthorizationFailed", "The identity may not use what this resource points to: give it a role there, too."),
    ("RoleAssignmentUpdateNotPermitted", "An assignment of an earlier principal is left over: delete it (it shows as "
     "'Identity not found'), then run again."),
    ("RoleAssignmentExists", "The same role is assigned under another name. Nothing is to be done; run again."),
    ("PrincipalNotFound", "The directory does not know the principal yet: run again in some minutes."),
    ("RequestDisallowedByPolicy", "A policy of the organization forbids it: ask for an exemption, or do as it wants."),
    ("AuthorizationFailed", "The identity lacks the right that the message names: have a role with it assigned at that "
     "scope, and wait some minutes."),
    ("MarketplacePurchaseEligibilityFailed", "Accept the image's terms (azure_infra_server_accept_terms), or have the "
     "subscription allowed to buy."),
    ("ResourcePurchaseValidationFailed", "The terms of the image are not accepted (azure_infra_server_accept_terms)."),
    ("OverconstrainedAllocationRequest", "No place fits all that is asked for at once: ask for less (zone, placement "
     "group, size)."),
    ("ZonalAllocationFailed", "This zone has no machines left: try another zone or no zone."),
    ("AllocationFailed", "The region has no machines of this size left: wait, or try another size or region."),
    ("SkuNotAvailable", "The size is not offered to this subscription here: choose another size, zone or region, or "
     "ask Microsoft to lift the restriction."),
    ("QuotaExceeded", f"Ask for quota in the portal (Quotas), or ask for less. {_PREFLIGHT}"),
    ("exceeding approved", f"Ask for quota in the portal (Quotas), or ask for less. {_PREFLIGHT}"),
    ("StorageAccountAlreadyTaken", "Somebody else has this name: set azure_infra_storage_account."),
    ("KeyBasedAuthenticationNotPermitted", "The account takes no shared keys: an identity has to be used."),
    ("InvalidResourceGroupLocation", "The resource group exists in another region: choose that one or another name."),
    ("MissingSubscriptionRegistration", "Register the provider that is named: az provider register --namespace NAME."),
    ("ResourceGroupBeingDeleted", "The resource group is being deleted: wait until it is gone, then run again."),
    ("ScopeLocked", "A lock forbids it: remove the lock that is named, or ask who made it."),
    ("CannotDeleteResource", "Something else still uses or holds it: remove that first."),
    ("ResourceGroupNotFound", "The resource group is gone: run again from the beginning."),
    ("NoRegisteredProviderFound", "The region does not have this: check its name (az account list-locations)."),
    ("LocationNotAvailableForResourceType", "Check the name of the region (az account list-locations)."),
    ("InvalidLocation", "Check the name of the region (az account list-locations)."),
    ("TooManyRequests", "Azure throttles this subscription: run again in some minutes."),
    ("CERTIFICATE_VERIFY_FAILED", "The certificate of the server is not trusted: set REQUESTS_CA_BUNDLE."),
    ("OperationNotAllowed", f"If the message speaks of cores, ask for quota in the portal (Quotas). {_PREFLIGHT}"),
    ("InvalidTemplateDeployment", "Read the details: they name the resource at fault."),
    ("Connection", "Azure was not reached or broke off: run again; what was begun is found and continued."),
    ("InternalServerError", "Azure failed: run again; what was begun is found and continued."),
)  # fmt: skip
_SECRET = re.compile(r"(client_secret=|Bearer |\"secret\": *\")[^\s&\"']+")
_DEPTH = 4


def remedy(text: str) -> str:
    """Return what to do about an error, or nothing."""
    lower = text.lower()
    return next((advice for code, advice in REMEDIES if code.lower() in lower), "")


def explain(text: str) -> str:
    """Return the error with what to do, and without anything secret."""
    clean = _SECRET.sub(r"\1***", " ".join(text.split()))
    advice = remedy(clean)
    return clean if not advice or advice in clean else f"{clean.rstrip('. ')}. What to do: {advice}"


def told(document: t.Any) -> str:
    """Return what an error document of Azure says, with the details in which the cause often hides."""
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, str):
        return f"{error}: {document.get('error_description', '')}".rstrip(": ")
    return "; ".join(_parts(error or document, _DEPTH)) or "nothing"


def _parts(error: t.Any, depth: int) -> t.Iterator[str]:
    if not isinstance(error, dict) or not depth:
        return
    said = ": ".join(str(error[key]) for key in ("code", "message") if error.get(key))
    if said:
        yield said
    for more in error.get("additionalInfo") or []:
        info = more.get("info") if isinstance(more, dict) else None
        if isinstance(info, dict) and info.get("policyDefinitionDisplayName"):
            yield f"policy {info['policyDefinitionDisplayName']!r}"
    for detail in error.get("details") or []:
        yield from _parts(detail, depth - 1)
