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

# What proves that the collection made something is its own name in hpcai-resource: policies, and templates that somebody
# exported and deployed elsewhere, copy tags. The rule is that of plugins/module_utils/azure/ownership.py.
function Test-Name($Tags, [string] $Name) {
    return (Test-Mine $Tags) -and $Tags['hpcai-resource'] -eq $Name
}

# CycleCloud's marks are the same on all that it makes, so they prove nothing where the group has them, too.
function Test-CycleCloud($Tags, $Group) {
    $node = "cyclecloud/$Cluster"
    if ((Test-Name $Tags $node) -and -not ($Group.Tags['hpcai-resource'] -eq $node)) { return $true }
    return $Tags -and $Tags['ClusterName'] -ceq $Cluster -and -not ($Group.Tags['ClusterName'] -eq $Cluster)
}

$tagged = @(Get-AzResourceGroup | Where-Object { Test-Mine $_.Tags })
$groups = @($tagged | Where-Object { Test-Name $_.Tags "resourceGroups/$($_.ResourceGroupName)" })
foreach ($group in $tagged | Where-Object { $_ -notin $groups }) {
    Write-Warning "$($group.ResourceGroupName) has the tags of $Cluster, but not its own name in hpcai-resource: it is left"
}
if ($groups.Count -eq 0) { Write-Output "Nothing of $Cluster is there."; return }

foreach ($group in $groups) {
    $said = $group.Tags['expires-on']
    $due = [DateTimeOffset]::MinValue
    if (-not [DateTimeOffset]::TryParse($said, [ref] $due)) { throw "expires-on of $($group.ResourceGroupName) is '$said'" }
    if ($due -gt [DateTimeOffset]::UtcNow) { Write-Output "$Cluster stays until $said."; return }
    $locks = @(Get-AzResourceLock -ResourceGroupName $group.ResourceGroupName)
    if ($locks.Count -gt 0) { throw "$($group.ResourceGroupName) is locked by $($locks[0].Name): remove the lock, or run destroy.yml" }
    $all = @(Get-AzResource -ResourceGroupName $group.ResourceGroupName)
    $known = @($all | Where-Object {
        $own = "$($group.ResourceGroupName)/$(($_.ResourceType -split '/')[-1])/$(($_.ResourceId -split '/')[-1])"
        (Test-Name $_.Tags $own) -or (Test-CycleCloud $_.Tags $group)
    } | ForEach-Object { $_.ResourceId })
    # What something known manages goes with it, and so do its parts: three rounds, for a disk of a machine of a scale set.
    foreach ($round in 1..3) {
        $known += @($all | Where-Object {
            $id = $_.ResourceId
            $_.ManagedBy -in $known -or @($known | Where-Object { $id.StartsWith("$_/", "OrdinalIgnoreCase") }).Count -gt 0
        } | ForEach-Object { $_.ResourceId })
    }
    foreach ($found in $all | Where-Object { $_.ResourceId -notin $known }) {
        throw "$($found.ResourceId) does not prove that it is of $Cluster. Nothing was deleted: move it elsewhere, or run destroy.yml with its id in azure_teardown_also"
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
