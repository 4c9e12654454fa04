-- Lists of an owner in each order.
CREATE INDEX conversations_of_owner_by_activity ON conversations (owner, activity_at, sequence) WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_created ON conversations (owner, created_at, sequence) WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_cost ON conversations (owner, cost, sequence) WHERE owner IS NOT NULL;
CREATE INDEX conversations_of_owner_by_tokens ON conversations (owner, tokens, sequence) WHERE owner IS NOT NULL;
-- With values that filters test, so that a list reads only the rows that it returns.
DROP INDEX conversations_by_owner;
CREATE INDEX conversations_by_owner ON conversations (owner, sequence, status, agent_kind, model, parent_id, source_id);
