-- name: renew_leases
SELECT api.renew_leases(:owner, :conversations, :tenants, :lease) AS id;

-- name: aborting_turns
SELECT api.aborting_turns(:turns, :tenants) AS id;

-- name: lost_wakeups
SELECT * FROM api.lost_wakeups(:quiet, :limit);

-- name: unsent_terminals
SELECT * FROM api.unsent_terminals(:age, :limit);

-- name: terminals_sent
SELECT api.terminals_sent(:tenants, :turns, :attempts);

-- name: ended_messages
SELECT api.ended_messages(:tenants, :messages) AS id;

-- name: deleted_conversations
SELECT * FROM api.deleted_conversations(:age, :limit);

-- name: erase_messages
SELECT api.erase_messages(:tenant, :conversation, :age, :limit) AS more;

-- name: erase_conversation
SELECT api.erase_conversation(:tenant, :conversation) AS erased;

-- name: forget_keys
SELECT api.forget_keys(:age) AS forgotten;

-- name: crowded_tenants
SELECT api.crowded_tenants(:limit) AS tenant;

-- name: backlog
SELECT * FROM api.backlog();
