-- Argo CD's health of a Memcached or a StatefulSetDrain: in argocd-cm, under
-- resource.customizations.health.cache.example.com_Memcached, and _StatefulSetDrain.
local hs = { status = "Progressing", message = "waiting for the operator" }
if obj.spec ~= nil and obj.spec.paused then
  hs = { status = "Suspended", message = "spec.paused is true" }
end
if obj.status == nil or obj.status.conditions == nil then
  return hs
end
if obj.status.observedGeneration == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local ready = nil
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Degraded" and condition.status == "True" then
    return { status = "Degraded", message = condition.reason .. ": " .. condition.message }
  end
  if condition.type == "Ready" then
    ready = condition
  end
end
if ready ~= nil and hs.status ~= "Suspended" then
  hs.message = ready.reason .. ": " .. ready.message
  if ready.status == "True" then
    hs.status = "Healthy"
  end
end
return hs
