-- name: take_at_most
SELECT set_config('statement_timeout', :time, true);

-- name: search_messages
SELECT * FROM api.search_messages(:text, :limit, :offset);

-- name: index_messages
SELECT api.index_messages(:limit) AS written;
