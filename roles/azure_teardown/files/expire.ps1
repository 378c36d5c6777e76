<#
Deletes the resource groups of one cluster of hpcai.gpu_cluster, if they are due.
Started by a schedule of Azure Automation; the tag expires-on decides, so a day that was put off is respected.
Stays away from a group that has a lock or a resource that neither the collection nor CycleCloud made.
#>
param(
    [Parameter(Mandatory = $true)] [string] $Cluster,
    [Parameter(Mandatory = $true)] [string] $Subscription
)
$ErrorActionPreference = 'Stop'
Connect-AzAccount -Identity -Subscription $Subscription | Out-Null

function Test-Mine($Tags) {
    return $Tags -and $Tags['created-by'] -ceq 'hpcai.gpu_cluster' -and $Tags['hpcai-cluster'] -ceq $Cluster
}

# Policies copy tags of a group to what is made in it; hpcai-resource of a resource of ours is its own type and name.
function Test-Own($Found, $Group) {
    $said = if ($Found.Tags) { $Found.Tags['hpcai-resource'] }
    if (-not $said) { return -not $Group.Tags['hpcai-resource'] }
    return $said -in @("$(($Found.ResourceType -split '/')[-1])/$($Found.Name)", "cyclecloud/$Cluster")
}

$groups = @(Get-AzResourceGroup | Where-Object { Test-Mine $_.Tags })
if ($groups.Count -eq 0) { Write-Output "Nothing of $Cluster is there."; return }

foreach ($group in $groups) {
    $said = $group.Tags['expires-on']
    $due = [DateTimeOffset]::MinValue
    if (-not [DateTimeOffset]::TryParse($said, [ref] $due)) { throw "expires-on of $($group.ResourceGroupName) is '$said'" }
    if ($due -gt [DateTimeOffset]::UtcNow) { Write-Output "$Cluster stays until $said."; return }
    $locks = @(Get-AzResourceLock -ResourceGroupName $group.ResourceGroupName)
    if ($locks.Count -gt 0) { throw "$($group.ResourceGroupName) is locked by $($locks[0].Name): remove the lock, or run destroy.yml" }
    foreach ($found in Get-AzResource -ResourceGroupName $group.ResourceGroupName) {
        $mine = (Test-Mine $found.Tags) -and (Test-Own $found $group)
        $known = $mine -or $found.ManagedBy -or ($found.Tags -and $found.Tags['ClusterName'] -ceq $Cluster)
        if (-not $known -and $found.ResourceType -notmatch '/.*/') { throw "$($found.ResourceId) is not of $Cluster" }
    }
}

# Assignments outlive their identities, so they go first; without the right to do so they are left for destroy.yml.
$machines = $groups | ForEach-Object { Get-AzVM -ResourceGroupName $_.ResourceGroupName }
$identities = $groups | ForEach-Object { Get-AzUserAssignedIdentity -ResourceGroupName $_.ResourceGroupName }
$principals = @($machines | ForEach-Object { $_.Identity.PrincipalId }) + @($identities | ForEach-Object { $_.PrincipalId })
foreach ($principal in $principals | Where-Object { $_ }) {
    foreach ($assignment in Get-AzRoleAssignment -ObjectId $principal) {
        try { Remove-AzRoleAssignment -InputObject $assignment | Out-Null }
        catch { Write-Warning "$($assignment.RoleAssignmentId) is left: $_" }
    }
}

# The group that this runs in goes last: nobody is there to see it end.
foreach ($group in $groups | Sort-Object { $_.ResourceGroupName -like '*-expiry-rg' }) {
    Write-Output "Deleting $($group.ResourceGroupName)"
    Remove-AzResourceGroup -Name $group.ResourceGroupName -Force | Out-Null
}
